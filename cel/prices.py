"""What a call costs at most, in the API server's units, by how large its operands can be.

The numbers are upstream's (k8s.io/apiserver/pkg/cel/library, cel-go's checker): a text is refused by them, so there is
no choosing. About one unit an operation, a tenth a character looked at; what cannot be bounded is `UNBOUND`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cel import tree, types

UNBOUND = 2**64 - 1
_LETTER, _PATTERN, _NEW_LIST = 0.1, 0.25, 10
_LONGEST_FORMAT, _LONGEST_PATTERN = 64, 128


@dataclass(frozen=True, slots=True)
class Range:
    """From `least` to `most`, of a size or of a cost."""

    least: int
    most: int

    def __add__(self, other: "Range") -> "Range":
        return Range(min(self.least + other.least, UNBOUND), min(self.most + other.most, UNBOUND))

    def __mul__(self, other: "Range") -> "Range":
        return Range(min(self.least * other.least, UNBOUND), min(self.most * other.most, UNBOUND))

    def __or__(self, other: "Range") -> "Range":
        return Range(min(self.least, other.least), max(self.most, other.most))

    def times(self, factor: float) -> "Range":
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))


ONE, NONE, ANY = Range(1, 1), Range(0, 0), Range(0, UNBOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What is known of an operand: `size` from the text itself, `declared` from what a device may hold.

    `element`: the declared size of its elements.
    """

    node: tree.Node
    type: types.Type
    size: Range | None = None
    declared: Range | None = None
    element: Range | None = None

    @property
    def known(self) -> Range:
        return self.size or self.declared or ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    cost: Range
    size: Range | None = None
    """Of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    function: str
    id: str
    target: Operand | None
    args: tuple[Operand, ...] = field(default=())


def price(asked: Asked) -> Price:
    """Without what the operands themselves cost."""
    own = _own(asked)
    return own or _standard(asked)


def _scaled(amount: int, factor: float) -> int:
    if amount > 0 and factor > 0 and amount > UNBOUND / factor:
        return UNBOUND
    found = math.ceil(float(amount) * factor)
    return UNBOUND if found >= 2**64 else found


def _literal(operand: Operand, otherwise: int) -> int:
    value = operand.node.value if isinstance(operand.node, tree.Literal) else None
    return max(value, 0) if type(value) is int else otherwise


def _listing(factor: float, size: Range) -> Price:
    """A call that makes a list of that size."""
    return Price(cost=size.times(factor) + ONE + Range(_NEW_LIST, _NEW_LIST), size=size)


def _sorting(size: Range, id_: str) -> Price:
    return _listing(2 + (_LETTER if "_string_" in id_ or "_bytes_" in id_ else 0), size * size)


def _own(asked: Asked) -> Price | None:
    """Of the extensions; None where the standard prices hold."""
    target, args, id_ = asked.target, asked.args, asked.id
    if id_.endswith(("_sort", "_sortByAssociatedKeys")) and target is not None:
        return _sorting((args[0] if args else target).known, id_)
    if id_.startswith("list_sets_"):
        factor = 2 if "equivalent" in id_ else 1
        return Price(cost=(args[0].known * args[1].known).times(factor) + ONE)
    if id_ in _BY_ID:
        return _BY_ID[id_](target, args)
    if asked.function in _NOMINAL:
        return Price(cost=ONE)
    by_name = _BY_NAME.get(asked.function)
    return by_name(asked) if by_name else None


def _slice(target: Operand | None, args: tuple[Operand, ...]) -> Price:
    assert target is not None
    length = _literal(args[1], target.known.most) - _literal(args[0], 0)
    return _listing(1, Range(length % 2**64, length % 2**64))


def _flatten(target: Operand | None, args: tuple[Operand, ...]) -> Price:
    assert target is not None
    return _listing(float(_literal(args[0], UNBOUND)) if args else 1.0, target.known)


def _range(_: Operand | None, args: tuple[Operand, ...]) -> Price:
    length = _literal(args[0], UNBOUND)
    return _listing(1, Range(length, length))


def _reverse(target: Operand | None, _: tuple[Operand, ...]) -> Price:
    assert target is not None
    return _listing(1, target.known)


def _distinct(target: Operand | None, _: tuple[Operand, ...]) -> Price:
    assert target is not None
    return _listing(2, target.known * target.known)


_BY_ID: Mapping[str, Callable[[Operand | None, tuple[Operand, ...]], Price]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    "cidr_ip": lambda _target, _args: Price(cost=ONE),
}
_NOMINAL = frozenset(
    [
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
    ]
)


def _walked(asked: Asked) -> Price | None:
    """Each element of a list is looked at once, or each letter of a string."""
    target = asked.target
    if target is None:
        return None
    if not target.type.params:
        each = ONE if asked.function == "includes" else None
        return Price(cost=target.known * each if each else target.known.times(_LETTER))
    each = ONE
    if target.type.params[0] in (types.STRING, types.BYTES):
        each += (target.element or ANY).times(_LETTER)
    return Price(cost=target.known * each)


def _read(factor: float, *, sized: bool = False) -> Callable[[Asked], Price | None]:
    """The text is read from one end to the other."""

    def made(asked: Asked) -> Price | None:
        if not asked.args:
            return None
        size = asked.args[0].known
        return Price(cost=size.times(factor), size=size if sized else None)

    return made


def _changed(asked: Asked) -> Price | None:
    if asked.target is None:
        return None
    return Price(cost=asked.target.known.times(_LETTER), size=asked.target.known)


def _replace(asked: Asked) -> Price | None:
    if asked.target is None:
        return None
    size, old, new = asked.target.known, asked.args[0].known, asked.args[1].known
    if old.least == 0:
        most, kept_most = (size.most + 1 if size.most < UNBOUND else size.most), size.most
    elif new.most <= old.least:
        most, kept_most = 0, size.most
    else:
        most, kept_most = math.ceil(float(size.most) / float(old.least)), 0
    if old.most == 0:
        least, kept_least = (size.least + 1 if size.least < UNBOUND else size.least), size.least
    elif old.most <= new.least:
        least, kept_least = 0, size.least
    else:
        least, kept_least = math.ceil(float(size.least) / float(old.most)), 0
    result = Range(least, min(most, UNBOUND)) * new + Range(kept_least, kept_most)
    return Price(cost=size.times(2 * _LETTER), size=result)


def _split(asked: Asked) -> Price | None:
    if asked.target is None:
        return None
    size = asked.target.known
    most = size.most
    if len(asked.args) > 1 and isinstance(asked.args[1].node, tree.Literal) and type(asked.args[1].node.value) is int:
        most = asked.args[1].node.value % 2**64
    return Price(cost=size.times(2 * _LETTER), size=Range(0, most))


def _join(asked: Asked) -> Price | None:
    if asked.target is None:
        return None
    count, size = asked.target.known, NONE
    if asked.target.type.params:
        size = count * (asked.target.element or ANY)
    if asked.args:
        size += asked.args[0].known * Range(max(count.least - 1, 0), max(count.most - 1, 0))
    return Price(cost=size.times(_LETTER), size=size)


def _find(asked: Asked) -> Price | None:
    if asked.target is None:
        return None
    size = asked.target.known
    cost = (size + ONE).times(_LETTER) * asked.args[0].known.times(_PATTERN)
    return Price(cost=cost, size=Range(0, size.most))


def _inside(asked: Asked) -> Price | None:
    """Of an address or a network in a network: their bytes are compared, after the text was read where it is one."""
    number = Range(4, 16)
    cost = (number + number).times(_LETTER)
    if asked.function == "containsCIDR":
        cost += number.times(_LETTER) + ONE
    if asked.id in ("cidr_contains_ip_string", "cidr_contains_cidr_string"):
        cost += asked.args[0].known.times(_LETTER)
    return Price(cost=cost)


def _validate(asked: Asked) -> Price | None:
    return Price(cost=asked.args[0].known.times(_LETTER).times(_LONGEST_PATTERN * _PATTERN))


_POINTS = (types.QUANTITY, types.SEMVER, types.IP, types.CIDR)


def _equal(asked: Asked) -> Price | None:
    one, other = asked.args
    if one.type != other.type:
        return None
    if one.type in _POINTS:
        return Price(cost=ONE)
    if one.type == types.FORMAT:
        return Price(cost=Range(1, _LONGEST_FORMAT).times(_LETTER))
    if one.type == types.URL:
        return Price(cost=Range(1, other.size.most if other.size else 1).times(_LETTER))
    return None


_BY_NAME: Mapping[str, Callable[[Asked], Price | None]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _walked),
    "url": _read(_LETTER, sized=True),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _changed),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _read(_LETTER)),
    "ip.isCanonical": _read(2 * _LETTER),
    **dict.fromkeys(("containsIP", "containsCIDR"), _inside),
    "validate": _validate,
    "_==_": _equal,
}
_ORDERED = frozenset(
    f"{word}_{kind}" for word in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")
)


def _size(operand: Operand) -> Range:
    """What cel-go itself knows: of the declared sizes only those that came with the node."""
    return operand.size or ANY


def _standard(asked: Asked) -> Price:  # noqa: PLR0911  one a kind of price
    target, args, id_ = asked.target, asked.args, asked.id
    if id_ == "string_format" and target is not None:
        return Price(cost=_size(target).times(_LETTER))
    if id_ in ("string_to_bytes", "bytes_to_string", "strings_quote"):
        size = _size(args[0])
        return Price(cost=size.times(_LETTER), size=_converted(id_, size))
    if id_ in ("starts_with_string", "ends_with_string"):
        return Price(cost=_size(args[0]).times(_LETTER))
    if id_ == "in_list":
        return Price(cost=_size(args[1]))
    if id_ in ("matches", "matches_string"):
        text, pattern = (target, args[0]) if target is not None else args
        return Price(cost=(_size(text) + ONE).times(_LETTER) * _size(pattern).times(_PATTERN))
    if id_ == "contains_string" and target is not None:
        return Price(cost=_size(target).times(_LETTER) * _size(args[0]).times(_LETTER))
    if id_ in ("add_string", "add_bytes", "add_list"):
        size = _size(args[0]) + _size(args[1])
        return Price(cost=ONE if id_ == "add_list" else size.times(_LETTER), size=size)
    if id_ in _ORDERED or id_ in ("equals", "not_equals"):
        most = min(_size(args[0]).most, _size(args[1]).most)
        return Price(cost=Range(1 if most else 0, most).times(_LETTER))
    return Price(cost=ONE)


def _converted(id_: str, size: Range) -> Range:
    match id_:
        case "string_to_bytes":
            return Range(size.least, size.most * 4 % 2**64)
        case "bytes_to_string":
            return Range(size.least // 4, size.most)
        case _:
            return Range(size.least + 2, (size.most * 2 + 2) % 2**64)

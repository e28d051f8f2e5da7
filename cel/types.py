"""The types that the checker reckons with, and how two of them are made one.

Rules of unification: https://github.com/google/cel-spec/blob/master/doc/langdef.md#gradual-type-checking
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` is `list`, `map`, `optional_type`, `type`, `param`, or the name of the type itself."""

    kind: str
    params: tuple["Type", ...] = ()
    name: str = ""
    """Of a type parameter."""

    def __str__(self) -> str:
        if self.kind == "param":
            return self.name
        inner = ", ".join(map(str, self.params))
        return f"{self.kind}({inner})" if inner else self.kind

    @property
    def open(self) -> bool:
        """Whatever is asked of it, the answer is only known at run time."""
        return self.kind in ("dyn", "any", "error")


DYN, ANY, ERROR = Type("dyn"), Type("any"), Type("error")
BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL = map(
    Type, ("bool", "int", "uint", "double", "string", "bytes", "null_type")
)
TIMESTAMP, DURATION = Type("google.protobuf.Timestamp"), Type("google.protobuf.Duration")
QUANTITY, SEMVER, DEVICE = Type("kubernetes.Quantity"), Type("kubernetes.Semver"), Type("kubernetes.DRADevice")
IP, CIDR, URL, FORMAT = Type("net.IP"), Type("net.CIDR"), Type("kubernetes.URL"), Type("kubernetes.NamedFormat")
NAMED: dict[str, Type] = {
    kind.kind: kind
    for kind in (
        *(BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN, TIMESTAMP, DURATION),
        *(QUANTITY, SEMVER, DEVICE, IP, CIDR, URL, FORMAT),
    )
}
_SHORT = NAMED | {
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "quantity": QUANTITY,
    "semver": SEMVER,
    "ip": IP,
    "cidr": CIDR,
    "url": URL,
    "format": FORMAT,
}
_MAY_BE_NULL = frozenset(
    {"optional_type", "any"}
    | {kind.kind for kind in (TIMESTAMP, DURATION, QUANTITY, SEMVER, DEVICE)}
    | {kind.kind for kind in (IP, CIDR, URL, FORMAT)}
)
_WORD = re.compile(r"[\w.]+|[(),]")


def listed(element: Type) -> Type:
    return Type("list", (element,))


def mapped(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional(value: Type) -> Type:
    return Type("optional_type", (value,))


def read(text: str) -> Type:
    """A type as signatures write it: `map(K, list(string))`, one capital letter a parameter."""
    words = iter(_WORD.findall(text))
    return _read(next(words), words)


def _read(word: str, words: Iterator[str]) -> Type:
    if word in ("list", "map", "optional", "type"):
        next(words)  # the parenthesis
        params = [_read(next(words), words)]
        if word == "map":
            next(words)  # the comma
            params.append(_read(next(words), words))
        next(words)  # the parenthesis
        return Type("optional_type" if word == "optional" else word, tuple(params))
    return Type("param", name=word) if len(word) == 1 else _SHORT[word]


class Bindings:
    """What each type parameter stands for so far."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        self._fresh += 1
        return Type("param", name=f"_{self._fresh}")

    def settled(self, type_: Type, *, closed: bool = False) -> Type:
        """With all that is known put in; `closed`: what is not known is dyn."""
        if type_ in self._bound:
            return self.settled(self._bound[type_], closed=closed)
        if type_.kind == "param":
            return DYN if closed else type_
        if not type_.params:
            return type_
        return Type(type_.kind, tuple(self.settled(param, closed=closed) for param in type_.params))

    def fits(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """Whether they can be made one; what that takes is remembered, or forgotten where they cannot."""
        before = dict(self._bound)
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        self._bound = before
        return False

    def _fits(self, given: Type, wanted: Type) -> bool:
        if wanted.kind == "param":
            valid, bound = self._stands(given, wanted)
            if valid or bound:
                return valid
        if given.kind == "param":
            return self._stands(wanted, given)[0]
        if given.open or wanted.open:
            return True
        if given.kind == "null_type" or wanted.kind == "null_type":
            other = wanted if given.kind == "null_type" else given
            return other.kind == "null_type" or other.kind in _MAY_BE_NULL
        if given.kind != wanted.kind:
            return False
        return given.kind == "type" or all(map(self._fits, given.params, wanted.params))

    def _stands(self, type_: Type, param: Type) -> tuple[bool, bool]:
        """Whether `param` can stand for the type, and whether it stood for one before."""
        if type_ == param:
            return True, True
        bound = self._bound.get(param)
        if bound is None:
            if self._inside(param, type_):
                return False, False
            self._bound[param] = type_
            return True, False
        if type_ == bound:
            return True, True
        if not self._fits(type_, bound):
            return False, True
        wider = more_general(type_, bound)
        if not self._inside(param, wider):
            self._bound[param] = wider
        return True, True

    def _inside(self, param: Type, type_: Type) -> bool:
        if param == type_:
            return True
        if type_.kind == "param":
            return type_ in self._bound and self._inside(param, self._bound[type_])
        return any(self._inside(param, inner) for inner in type_.params)


def more_general(one: Type, other: Type) -> Type:
    return one if _covers(one, other) else other


def _covers(one: Type, other: Type) -> bool:
    if one.open or one.kind == "param":
        return True
    if other.open or other.kind == "param" or one.kind != other.kind:
        return False
    return one.kind == "type" or (len(one.params) == len(other.params) and all(map(_covers, one.params, other.params)))

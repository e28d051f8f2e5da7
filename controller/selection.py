"""Which cards a class is made of: CEL for kube-scheduler, and what these very texts say of the cards that are there.

The user's own CEL text stands in a selector of its own: selectors are judged in order and all must hold, so that text
meets only cards of this driver, and no stray parenthesis in it can lift the tests before it.

Every attribute is asked for before it is read: reading one that a card lacks is an error in CEL, and such an error
stops the pod on all nodes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

import cel
from api import errors, names, quantity, v1alpha1
from controller import snapshot

_DOMAIN = f'["{names.LOCAL_DRIVER}"]'
_CARD = "gpu"
_OWN_WORDS = (names.UUID, "pciBusID")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    name_pattern: str | None
    memory: int | None
    held: tuple[tuple[str, tuple[str, ...]], ...]
    """Attributes that say what a card can hold shares to, and the words in them that will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """`matching`: cards that the class has. `failing`: those that its expression cannot be judged on, and `why`.

    `unsure`: why the expression was not judged at all; `matching` are then those that it may choose from.
    """

    matching: Mapping[snapshot.Card, int]
    failing: Mapping[snapshot.Card, int] = field(default_factory=dict)
    why: str = ""
    unsure: str = ""


def share(spec: v1alpha1.ClassSpec) -> v1alpha1.Share | None:
    """How firmly shares are held; None for whole cards."""
    return (spec.share or v1alpha1.Share()) if spec.backend is v1alpha1.Backend.SHARE else None


def driver(spec: v1alpha1.ClassSpec) -> str:
    """Whose devices the class is made of. Both drivers name their attributes alike."""
    return names.REMOTE_DRIVER if spec.backend is v1alpha1.Backend.REMOTE else names.LOCAL_DRIVER


def given(spec: v1alpha1.ClassSpec) -> bool:
    """Whether the class is made of cards that the controller allocates."""
    return spec.allocation.by is v1alpha1.Allocator.CONTROLLER


def selectors(
    cards: v1alpha1.Cards,
    share: v1alpha1.Share | None = None,
    *,
    driver: str = names.LOCAL_DRIVER,
    given: bool = False,
) -> list[dict[str, Any]]:
    """The `spec.selectors` of a DeviceClass: for whole cards, or for shares of them."""
    wanted = _wanted(cards, share)
    tests = [f'device.driver == "{driver}"', _attribute(names.TYPE, f" == {_quoted(_CARD)}")]
    if driver == names.LOCAL_DRIVER:  # by the taint alone, who tolerates all taints would get the controller's cards
        by_controller = _attribute(names.ALLOCATED_BY, f" == {_quoted(names.BY_CONTROLLER)}")
        tests.append(by_controller if given else f"!({by_controller})")
    if wanted.name_pattern is not None:
        tests.append(_attribute(names.PRODUCT_NAME, f".matches({_quoted(f'^(?:{wanted.name_pattern})$')})"))
    if wanted.memory is not None:
        amount = _quoted(quantity.text(wanted.memory))
        found = f"device.capacity{_DOMAIN}"
        tests.append(f'"{names.MEMORY}" in {found} && {found}.{names.MEMORY}.compareTo(quantity({amount})) >= 0')
    tests += [_attribute(name, f" in {_quoted(words)}") for name, words in wanted.held]
    texts = [" && ".join(tests), *([cards.expression] if cards.expression.strip() else [])]
    return [{"cel": {"expression": text}} for text in texts]


def judged(
    cards: v1alpha1.Cards,
    among: Mapping[snapshot.Card, int],
    share: v1alpha1.Share | None = None,
    *,
    driver: str = names.LOCAL_DRIVER,
    given: bool = False,
) -> Judged:
    """What the class's selectors say of these cards."""
    first, *own = (one["cel"]["expression"] for one in selectors(cards, share, driver=driver, given=given))
    found = {card: count for card, count in among.items() if _holds(first, card)}
    if not own or not found:
        return Judged(matching=found)
    if any(word in own[0] for word in _OWN_WORDS):
        return Judged(matching=found, unsure="it looks at what each card has for itself")
    try:
        program = cel.compile(own[0])
    except errors.Invalid as error:
        return Judged(matching=found, unsure=f"it cannot be judged here: {error}")
    matching, failing, why = {}, {}, ""
    for card, count in found.items():
        try:
            if program.matches(card.seen):
                matching[card] = count
        except cel.Failed as error:
            failing[card] = count
            why = why or str(error)
    return Judged(matching=matching, failing=failing, why=why)


def _holds(text: str, card: snapshot.Card) -> bool:
    try:
        return cel.compile(text).matches(card.seen)
    except errors.Invalid:  # a device that no text can be judged on, or globs beyond all measure
        return False


def _wanted(cards: v1alpha1.Cards, share: v1alpha1.Share | None) -> _Wanted:
    """Only what a class requires is looked for: a card that cannot hold it would keep the pod from starting."""
    required = v1alpha1.Enforcement.REQUIRED
    limits = {} if share is None else {names.MEMORY_ENFORCEMENT: share.memory, names.CORES_ENFORCEMENT: share.cores}
    words = () if share is None else tuple(rung.value.lower() for rung in share.accept)
    return _Wanted(
        name_pattern="|".join(map(_pattern, cards.product_names)) if cards.product_names else None,
        memory=None if cards.min_memory is None else math.ceil(quantity.parse(cards.min_memory)),
        held=tuple((name, words) for name, firmness in limits.items() if firmness is required),
    )


def _pattern(glob: str) -> str:
    """A glob as a regular expression."""
    return _SPECIAL.sub(r"\\\1", glob).replace(r"\*", ".*").replace(r"\?", ".")


def _attribute(name: str, test: str) -> str:
    found = f"device.attributes{_DOMAIN}"
    return f'"{name}" in {found} && {found}.{name}{test}'


def _quoted(text: str | tuple[str, ...]) -> str:
    """A CEL literal, a string or a list of them: its escapes are those of JSON."""
    return msgspec.json.encode(text).decode()

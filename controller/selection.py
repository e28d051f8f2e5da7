"""Which cards a class is made of, said twice: as CEL for kube-scheduler, and as a test of our own for the count.

Both sayings come from one reading of the spec (`_Wanted`), so they cannot differ. The user's own CEL text stands in a
selector of its own: selectors are judged in order and all must hold, so that text meets only cards of this driver,
and no stray parenthesis in it can lift the tests before it.

Every attribute is asked for before it is read: reading one that a card lacks is an error in CEL, and such an error
stops the pod on all nodes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api import names, quantity, v1alpha1
from controller import snapshot

_DOMAIN = f'["{names.LOCAL_DRIVER}"]'
_CARD = "gpu"
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    name_pattern: str | None
    memory: int | None
    held: tuple[tuple[str, tuple[str, ...]], ...]
    """Attributes that say what a card can hold shares to, and the words in them that will do."""


def share(spec: v1alpha1.ClassSpec) -> v1alpha1.Share | None:
    """How firmly shares are held; None for whole cards."""
    return (spec.share or v1alpha1.Share()) if spec.backend is v1alpha1.Backend.SHARE else None


def driver(spec: v1alpha1.ClassSpec) -> str:
    """Whose devices the class is made of. Both drivers name their attributes alike."""
    return names.REMOTE_DRIVER if spec.backend is v1alpha1.Backend.REMOTE else names.LOCAL_DRIVER


def selectors(
    cards: v1alpha1.Cards, share: v1alpha1.Share | None = None, *, driver: str = names.LOCAL_DRIVER
) -> list[dict[str, Any]]:
    """The `spec.selectors` of a DeviceClass: for whole cards, or for shares of them."""
    wanted = _wanted(cards, share)
    tests = [f'device.driver == "{driver}"', _attribute(names.TYPE, f" == {_quoted(_CARD)}")]
    if wanted.name_pattern is not None:
        tests.append(_attribute(names.PRODUCT_NAME, f".matches({_quoted(f'^(?:{wanted.name_pattern})$')})"))
    if wanted.memory is not None:
        amount = _quoted(quantity.text(wanted.memory))
        found = f"device.capacity{_DOMAIN}"
        tests.append(f'"{names.MEMORY}" in {found} && {found}.{names.MEMORY}.compareTo(quantity({amount})) >= 0')
    tests += [_attribute(name, f" in {_quoted(words)}") for name, words in wanted.held]
    texts = [" && ".join(tests), *([cards.expression] if cards.expression.strip() else [])]
    return [{"cel": {"expression": text}} for text in texts]


def matching(
    cards: v1alpha1.Cards,
    among: Mapping[snapshot.Card, int],
    share: v1alpha1.Share | None = None,
    *,
    driver: str = names.LOCAL_DRIVER,
) -> dict[snapshot.Card, int]:
    """The cards that the class matches; with an expression, at most these: that is judged by the scheduler alone."""
    wanted = _wanted(cards, share)
    return {card: count for card, count in among.items() if card.driver == driver and _matches(wanted, card)}


def _matches(wanted: _Wanted, card: snapshot.Card) -> bool:
    named = wanted.name_pattern is None or (
        card.product_name is not None and re.fullmatch(wanted.name_pattern, card.product_name) is not None
    )
    large = wanted.memory is None or (card.memory is not None and card.memory >= wanted.memory)
    holds = {names.MEMORY_ENFORCEMENT: card.memory_enforcement, names.CORES_ENFORCEMENT: card.cores_enforcement}
    return card.type == _CARD and named and large and all(holds[name] in words for name, words in wanted.held)


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
    """A glob in the regular expressions that RE2 and Python share."""
    return _SPECIAL.sub(r"\\\1", glob).replace(r"\*", ".*").replace(r"\?", ".")


def _attribute(name: str, test: str) -> str:
    found = f"device.attributes{_DOMAIN}"
    return f'"{name}" in {found} && {found}.{name}{test}'


def _quoted(text: str | tuple[str, ...]) -> str:
    """A CEL literal, a string or a list of them: its escapes are those of JSON."""
    return msgspec.json.encode(text).decode()

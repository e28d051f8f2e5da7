"""What selectors say of devices, asked once for each kind of card.

A text that looks at what tells one card from the next is asked for each card; so is one of which that cannot be known.
"""

import re
from collections import OrderedDict
from fractions import Fraction

import cel
from allocation import devices
from api import errors, resource

_KEPT = 256
"""Texts whose answers are kept: claims bring any number of them."""
_PLAIN = re.compile(
    r'device\.(attributes|capacity)\["[^"\\]*"\](?!\.(all|exists|exists_one|map|filter|transform\w+)\()'
)
_WHOLE = re.compile(r"device\.(attributes|capacity)")


class Selectors:
    """Answers of CEL texts, kept while they are asked for. Not for several threads at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Known] = OrderedDict()

    def match(self, text: str | None, device: devices.Device) -> bool:
        """Raises Invalid for a text that does not compile, or cannot be judged on the device."""
        if text is None:
            raise errors.Invalid("a selector without a CEL text; this release knows no other kind")
        known = self._kept.get(text)
        if known is None:
            known = self._kept[text] = _Known(text)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return known.match(device)


class _Known:
    """One text. Only a verdict is kept: what cannot be judged is said anew."""

    __slots__ = ("_program", "_said", "_singles", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._program = cel.compile(text, stored=True)
        self._singles = personal(text)
        self._said: dict[devices.Look, bool] = {}

    def match(self, device: devices.Device) -> bool:
        said = self._said.get(device.look)
        if said is None:
            said = self._judged(device)
            if not self._singles:
                if len(self._said) > 8 * _KEPT:
                    self._said.clear()
                self._said[device.look] = said
        return said

    def _judged(self, device: devices.Device) -> bool:
        try:
            return self._program.matches(_seen(device))
        except cel.Failed as error:
            raise errors.Invalid(
                f"the selector {self._text[:200]!r} cannot be judged on device {'/'.join(device.key)}: {error}; "
                "kube-scheduler gives up the pod on all nodes for it, so a text must ask whether an attribute is there"
            ) from error


def personal(text: str) -> bool:
    """Whether the text may tell apart cards of one kind: it names what differs, or goes through all that a card has."""
    return any(name in text for name in devices.OWN) or len(_WHOLE.findall(text)) != len(_PLAIN.findall(text))


def _seen(device: devices.Device) -> cel.Device:
    return cel.Device(
        driver=device.look.driver,
        attributes=tuple((name, _value(value)) for name, value in device.attributes.items()),
        capacity=tuple((name, Fraction(one.value)) for name, one in device.look.sizes.by_name.items()),
        shared=device.look.shareable,
    )


def _value(value: devices.Attribute) -> cel.Attribute:
    match value:
        case resource.Version():
            return cel.version(value.text)
        case devices.Strange():
            raise cel.Failed("an attribute has a value of a kind that is not known")
        case _:
            return value

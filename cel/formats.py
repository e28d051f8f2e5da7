"""Named formats: whether a text has the form of a DNS label, a UUID, a date and so on, and what is wrong with it."""

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Mapping

from cel import clock, functions, network
from cel.values import NOTHING, Failed, Format, Optional

_LABEL, _OLD_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?", "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _form(pattern: str, longest: int, words: str, *, prefix: bool = False) -> Callable[[str], list[str]]:
    form = re.compile(pattern, re.ASCII)

    def test(text: str) -> list[str]:
        wrong = [f"must be no more than {longest} characters"] if len(text.encode()) > longest else []
        whole = f"{text[:-2]}a" if prefix and len(text) > 1 and text.endswith("-") else text
        return wrong if form.fullmatch(whole) else [*wrong, words]

    return test


def _qualified(text: str) -> list[str]:
    domain, mark, name = text.rpartition("/")
    wrong = ["prefix part must be non-empty"] if mark and not domain else []
    if domain:
        wrong += _FORMATS["dns1123Subdomain"][1](domain)
    return wrong + _form(_NAME, 63, "name part must consist of alphanumeric characters, '-', '_' or '.'")(name)


def _succeeds(call: Callable[[str], object], words: str) -> Callable[[str], list[str]]:
    def test(text: str) -> list[str]:
        try:
            call(text)
        except (Failed, ValueError, binascii.Error):
            return [words]
        return []

    return test


def _uuid(text: str) -> None:
    if not _UUID.fullmatch(text):
        raise Failed("no UUID")


_FORMATS: Mapping[str, tuple[str, Callable[[str], list[str]]]] = {
    "dns1123Label": ("DNS1123Label", _form(_LABEL, 63, "must be a lowercase RFC 1123 label")),
    "dns1123Subdomain": ("DNS1123Subdomain", _form(_SUBDOMAIN, 253, "must be a lowercase RFC 1123 subdomain")),
    "dns1035Label": ("DNS1035Label", _form(_OLD_LABEL, 63, "must be a DNS-1035 label")),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", _form(_LABEL, 63, "must be a lowercase RFC 1123 label", prefix=True)),
    "dns1123SubdomainPrefix": (
        "DNS1123SubdomainPrefix",
        _form(_SUBDOMAIN, 253, "must be a lowercase RFC 1123 subdomain", prefix=True),
    ),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", _form(_OLD_LABEL, 63, "must be a DNS-1035 label", prefix=True)),
    "labelValue": ("LabelValue", _form(f"({_NAME})?", 63, "must be an empty string or a label's value")),
    "qualifiedName": ("QualifiedName", _qualified),
    "uri": ("URI", _succeeds(network.to_url, "must be an absolute URI or a path")),
    "uuid": ("uuid", _succeeds(_uuid, "does not match the UUID format")),
    "byte": ("byte", _succeeds(lambda text: base64.b64decode(text, validate=True), "invalid base64")),
    "date": ("date", _succeeds(lambda text: datetime.date(*map(int, text.split("-"))), "invalid date")),
    "datetime": ("datetime", _succeeds(clock.timestamp, "invalid datetime")),
}
_TESTS = dict(_FORMATS.values())


def _validate(form: Format, text: str) -> Optional:
    wrong = _TESTS[form.name](text)
    return Optional((wrong,)) if wrong else NOTHING


def _named(name: str) -> Optional:
    return Optional((Format(_FORMATS[name][0]),)) if name in _FORMATS else NOTHING


def _constant(name: str) -> Callable[[], Format]:
    return lambda: Format(name)


ROWS: list[functions.Row] = [
    ("format.validate(string) -> optional(list(string))", "format-validate", _validate),
    ("format.named: (string) -> optional(format)", "format-named", _named),
    *((f"format.{key}: () -> format", f"format.{key}", _constant(name)) for key, (name, _) in _FORMATS.items()),
]

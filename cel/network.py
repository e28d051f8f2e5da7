"""IP addresses, networks and URLs."""

import ipaddress
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from cel import functions
from cel.values import CIDR, IP, URL, Failed

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ESCAPES = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+(?:%25[^\]]+)?\]|[^\x00-\x20\x7f/?#\[\]@<>\"\\^`{}|%:]*(?:%[0-9A-Fa-f]{2}[^\x00-\x20\x7f/?#\[\]@:]*)*)(?::\d*)?"
)
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


def _ip(text: str) -> IP:
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise Failed(f"IP Address {text!r} parse error during conversion from string: {error}") from error
    if "%" in text:
        raise Failed(f"IP address {text!r} with zone value is not allowed")
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise Failed(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return IP(int(found), found.max_prefixlen)


def _cidr(text: str) -> CIDR:
    head, mark, tail = text.rpartition("/")
    try:
        found = _ip(head)
    except Failed as error:
        raise Failed(f"network address parse error during conversion from string: {error}") from error
    if not mark or not re.fullmatch(r"0|[1-9][0-9]{0,2}", tail, re.ASCII) or int(tail) > found.bits:
        raise Failed(f"network address parse error during conversion from string: {text!r}")
    return CIDR(found.number, found.bits, int(tail))


def _address(one: IP) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.IPv4Address(one.number) if one.bits == 32 else ipaddress.IPv6Address(one.number)  # noqa: PLR2004


def _ip_text(one: IP) -> str:
    return str(_address(one))


def _cidr_text(one: CIDR) -> str:
    return f"{_ip_text(IP(one.number, one.bits))}/{one.length}"


def _global(one: IP) -> bool:
    found = _address(one)
    special = found.is_unspecified or found.is_loopback or found.is_multicast or found.is_link_local
    return not special and (one.bits, one.number) != (32, 2**32 - 1)


def _prefix(number: int, bits: int, length: int) -> int:
    return number >> (bits - length) << (bits - length)


def _holds(network: CIDR, one: IP) -> bool:
    same = _prefix(one.number, one.bits, network.length) if one.bits == network.bits else -1
    return same == _prefix(network.number, network.bits, network.length)


def _holds_network(network: CIDR, other: CIDR) -> bool:
    return network.length <= other.length and _holds(network, IP(other.number, other.bits))


def _link_local_multicast(one: IP) -> bool:
    if one.bits == 32:  # noqa: PLR2004
        return one.number >> 8 == 0xE00000  # noqa: PLR2004  224.0.0.0/24
    return one.number >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004  ff02::/16, whatever its flags


def to_url(text: str) -> URL:
    """A URI of a request: absolute, or a path from the root."""
    if not text or _CONTROL.search(text):
        raise Failed(f"URL parse error during conversion from string: {text[:80]!r}")
    parts = _parts(text)
    if not (parts["scheme"] or text.startswith("/") or text == "*"):
        raise Failed(f"URL parse error during conversion from string: {text[:80]!r}: invalid URI for request")
    return URL(text)


def _parts(text: str) -> dict[str, str]:
    rest, _, query = text.partition("#")[0].partition("?")
    scheme = ""
    if (found := _SCHEME.match(rest)) and rest[found.end() : found.end() + 1] == ":":
        scheme, rest = found[0].lower(), rest[found.end() + 1 :]
    elif rest.startswith(":") or (":" in rest.partition("/")[0]):
        raise Failed(
            f"URL parse error during conversion from string: {text[:80]!r}: first path segment in URL cannot contain colon"
        )
    host, path = "", rest
    if scheme and not rest.startswith("/"):
        path = ""
    elif scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        user, at, host = authority.rpartition("@")
        if not _HOST.fullmatch(host) or (at and not _USER.fullmatch(user)):
            raise Failed(f"URL parse error during conversion from string: {text[:80]!r}: invalid host")
    if _ESCAPES.search(path):
        raise Failed(f"URL parse error during conversion from string: {text[:80]!r}: invalid URL escape")
    return {"scheme": scheme, "host": host, "path": path, "query": query}


def _hostname(host: str) -> tuple[str, str]:
    name, mark, port = host.rpartition(":")
    if not mark or "]" in port:
        name, port = host, ""
    return name[1:-1] if name.startswith("[") else name, port


def _query(text: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for name, value in urllib.parse.parse_qsl(_parts(text)["query"], keep_blank_values=True):
        found.setdefault(name, []).append(value)
    return found


def _escaped(path: str) -> str:
    return urllib.parse.quote(path, safe="/%!$&'()*+,;=:@~-._[]")


def _is(convert: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            convert(text)
        except Failed:
            return False
        return True

    return test


ROWS: list[functions.Row] = [
    ("ip: (string) -> ip", "string_to_ip", _ip),
    ("ip.family() -> int", "ip_family", lambda one: 4 if one.bits == 32 else 6),  # noqa: PLR2004
    ("ip.isCanonical: (string) -> bool", "ip_is_canonical", lambda text: _ip_text(_ip(text)) == text),
    ("ip.isUnspecified() -> bool", "ip_is_unspecified", lambda one: one.number == 0),
    ("ip.isLoopback() -> bool", "ip_is_loopback", lambda one: _address(one).is_loopback),
    ("ip.isLinkLocalMulticast() -> bool", "ip_is_link_local_multicast", _link_local_multicast),
    ("ip.isLinkLocalUnicast() -> bool", "ip_is_link_local_unicast", lambda one: _address(one).is_link_local),
    ("ip.isGlobalUnicast() -> bool", "ip_is_global_unicast", _global),
    ("isIP: (string) -> bool", "is_ip", _is(_ip)),
    ("string: (ip) -> string", "ip_to_string", _ip_text),
    ("cidr: (string) -> cidr", "string_to_cidr", _cidr),
    ("cidr.containsIP(string) -> bool", "cidr_contains_ip_string", lambda one, text: _holds(one, _ip(text))),
    ("cidr.containsIP(ip) -> bool", "cidr_contains_ip_ip", _holds),
    (
        "cidr.containsCIDR(string) -> bool",
        "cidr_contains_cidr_string",
        lambda one, text: _holds_network(one, _cidr(text)),
    ),
    ("cidr.containsCIDR(cidr) -> bool", "cidr_contains_cidr", _holds_network),
    ("cidr.ip() -> ip", "cidr_ip", lambda one: IP(one.number, one.bits)),
    ("cidr.prefixLength() -> int", "cidr_prefix_length", lambda one: one.length),
    (
        "cidr.masked() -> cidr",
        "cidr_masked",
        lambda one: CIDR(_prefix(one.number, one.bits, one.length), one.bits, one.length),
    ),
    ("isCIDR: (string) -> bool", "is_cidr", _is(_cidr)),
    ("string: (cidr) -> string", "cidr_to_string", _cidr_text),
    ("url: (string) -> url", "string_to_url", to_url),
    ("isURL: (string) -> bool", "is_url_string", _is(to_url)),
    ("url.getScheme() -> string", "url_get_scheme", lambda one: _parts(one.text)["scheme"]),
    ("url.getHost() -> string", "url_get_host", lambda one: _parts(one.text)["host"]),
    ("url.getHostname() -> string", "url_get_hostname", lambda one: _hostname(_parts(one.text)["host"])[0]),
    ("url.getPort() -> string", "url_get_port", lambda one: _hostname(_parts(one.text)["host"])[1]),
    ("url.getEscapedPath() -> string", "url_get_escaped_path", lambda one: _escaped(_parts(one.text)["path"])),
    ("url.getQuery() -> map(string, list(string))", "url_get_query", lambda one: _query(one.text)),
]

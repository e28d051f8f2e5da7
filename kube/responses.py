"""What a refusal of the API server means to us: HTTP status and reason -> one of our errors, with a text that helps.

Kubernetes answers a failed call with a Status object; its `reason` is finer than the HTTP code and decides where it
is known. A proxy in between answers without one, then the code decides. Every code from 400 to 599 and every reason
of 1.37 has a meaning here.
"""

import re
from typing import Final

import msgspec

from api import errors


class Throttled(errors.NotReady):
    """The server wants fewer calls. It has done nothing, so every call may be repeated after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Expired(errors.NotReady):
    """The resource version or the page token is too old for this server: list again from the start."""


class Status(msgspec.Struct):
    """The part of `meta/v1 Status` that is used."""

    message: str = ""
    reason: str = ""
    code: int = 0


_Error = type[errors.ElasticGPUError]

REASONS: Final[dict[str, _Error]] = {
    "Unauthorized": errors.NotReady,
    "Forbidden": errors.Invalid,
    "NotFound": errors.NotReady,
    "AlreadyExists": errors.Conflict,
    "Conflict": errors.Conflict,
    "Gone": Expired,
    "Expired": Expired,
    "Invalid": errors.Invalid,
    "BadRequest": errors.Invalid,
    "MethodNotAllowed": errors.Invalid,
    "NotAcceptable": errors.Invalid,
    "RequestEntityTooLarge": errors.Invalid,
    "UnsupportedMediaType": errors.Invalid,
    "TooManyRequests": Throttled,
    "ServerTimeout": errors.Unavailable,
    "Timeout": errors.Unavailable,
    "InternalError": errors.Unavailable,
    "StorageReadError": errors.Unavailable,
    "ServiceUnavailable": errors.Unavailable,
}
CODES: Final[dict[int, _Error]] = {
    401: errors.NotReady,
    404: errors.NotReady,
    409: errors.Conflict,
    410: Expired,
    429: Throttled,
}
_ADVICE: Final[dict[_Error, str]] = {
    errors.Conflict: "read the object again and decide anew",
    errors.Unavailable: "whether it was done is unknown; it can be repeated",
    Expired: "list again from the start",
    Throttled: "the server asks for fewer calls; repeat later",
}
_VERBS: Final = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "WATCH": "watch",
    "LIST": "list",
}
_PATH = re.compile(r"/(?:api/[^/]+|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<rest>.+)")
_SERVER_ERRORS: Final = 500
_INVALID: Final = 422
_OTHER_OBJECT: Final = "metadata.uid: Invalid value"
"""A patch that names a uid meets another object of that name: the server calls it an invalid change of the uid."""
_MAX_RETRY_AFTER_S: Final = 60.0


def failure(verb: str, path: str, status: int, body: bytes, *, retry_after: str = "") -> errors.ElasticGPUError:
    """The error for an answer of 400 or more. `verb` is the HTTP method, or LIST or WATCH for those kinds of GET."""
    said = _status(body)
    kind = REASONS.get(said.reason) or CODES.get(status)
    if kind is None:
        kind = errors.Unavailable if status >= _SERVER_ERRORS else errors.Invalid
    if status == _INVALID and _OTHER_OBJECT in said.message:
        kind = errors.Conflict
    words = said.message or body[:200].decode(errors="replace").strip() or "no words"
    message = f"{verb} {path}: the API server answered {status} {said.reason}: {words}; {_advice(kind, verb, path, status, words)}"
    if issubclass(kind, Throttled):
        return Throttled(message, _seconds(retry_after))
    return kind(message)


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        return Status()


def _advice(kind: _Error, verb: str, path: str, status: int, words: str) -> str:
    match status:
        case 401:
            return "check the token or certificate of this client; it is read again at the next call"
        case 403 if " cannot " in words:
            return f"grant {permission(verb, path)} to this account"
        case 403:
            return "an admission rule or a quota refuses it; its words say which"
        case 404:
            return "the namespace or the kind does not exist there (yet)"
        case _:
            return _ADVICE.get(kind, "correct the request")


def permission(verb: str, path: str) -> str:
    """The RBAC rule that a call needs, in the words of a role."""
    match = _PATH.fullmatch(path)
    if match is None:
        return f"the verb {_VERBS.get(verb, 'get')!r} on {path}"
    parts = match["rest"].split("/")
    resource = "/".join([parts[0], *parts[2:]])
    group = f" of API group {match['group']!r}" if match["group"] else ""
    where = f" in namespace {match['ns']!r}" if match["ns"] else ""
    return f"the verb {_VERBS.get(verb, 'get')!r} on {resource!r}{group}{where}"


def _seconds(retry_after: str) -> float:
    try:
        return min(max(float(retry_after), 0.0), _MAX_RETRY_AFTER_S)
    except ValueError:
        return 1.0

"""AdmissionReview: the API server's question as a value, and our answer as JSON.

bytes --> read --> Question --> (mutation, checks) --> Answer --> written --> bytes
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api import errors

JSON = Mapping[str, Any]
_VERSION = "admission.k8s.io/v1"
_INVALID = 422


class _Kind(msgspec.Struct):
    kind: str


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _Kind
    namespace: str = ""
    operation: str = ""
    object: dict[str, Any] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    request: _Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`object` as it is to be stored; empty for a deletion."""

    uid: str
    kind: str
    namespace: str
    operation: str
    object: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`refusal` says why not; empty: it may be stored, with `patch` applied."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()


def read(data: bytes) -> Question:
    """Raises Invalid for what is no AdmissionReview that we know."""
    try:
        review = msgspec.json.decode(data, type=_Review)
    except msgspec.MsgspecError as error:
        raise errors.Invalid(f"this is no AdmissionReview: {error}") from error
    if review.api_version != _VERSION:
        raise errors.Invalid(f"AdmissionReview is of {review.api_version!r}; known: {_VERSION}")
    asked = review.request
    return Question(
        uid=asked.uid,
        kind=asked.kind.kind,
        namespace=asked.namespace,
        operation=asked.operation,
        object=asked.object or {},
    )


def written(question: Question, answer: Answer) -> bytes:
    response: dict[str, Any] = {"uid": question.uid, "allowed": not answer.refusal}
    if answer.refusal:
        response["status"] = {"code": _INVALID, "reason": "Invalid", "message": answer.refusal}
    if answer.warnings:
        response["warnings"] = answer.warnings
    if answer.patch and not answer.refusal:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(answer.patch)).decode()}
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": "AdmissionReview", "response": response})

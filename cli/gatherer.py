"""Asks for the objects that a command needs, and puts up with what it may not have.

    queries, all at once --> answers --> view.objects.Objects
                             claims refused for the cluster --> those of one namespace

What could not be read is a Part with its reason. Where there is no API server to ask, or no inventory, there is no
picture: that is an error.
"""

import functools
from collections.abc import Sequence
from typing import Any

from api import errors
from cli import kubectl, queries
from view import objects, reader


def gather(way: kubectl.Kubectl, wanted: Sequence[queries.Query], namespace: str = "") -> objects.Objects:
    """`namespace`: whose claims are read where those of all may not be; empty for that of the context.

    Raises Unavailable with kubectl's words where no server answers, Invalid where nothing of the inventory may be read.
    """
    found = _asked(way, wanted)
    claims = found.get(queries.Kind.CLAIMS)
    if claims is not None and claims.unknown and not _of(wanted, queries.Kind.CLAIMS).namespace:
        own = _asked(way, [queries.claims_instead(namespace or way.namespace())])[queries.Kind.CLAIMS]
        found[queries.Kind.CLAIMS] = claims if own.unknown else own
    parts: dict[str, Any] = {kind.value: part for kind, part in found.items()}
    for name in (queries.Kind.SLICES, queries.Kind.CLAIMS):
        parts.setdefault(name.value, objects.Part(unknown=objects.NOT_ASKED))
    return objects.Objects(**parts)


def _asked(way: kubectl.Kubectl, wanted: Sequence[queries.Query]) -> dict[queries.Kind, objects.Part[Any]]:
    answers = way.read((query.path, functools.partial(_listed, query)) for query in wanted)
    found: dict[queries.Kind, objects.Part[Any]] = {}
    for query, answer in zip(wanted, answers, strict=True):
        part = _part(query, answer)
        found[query.kind] = _together(found[query.kind], part) if query.kind in found else part
    return found


def _together(one: objects.Part[Any], other: objects.Part[Any]) -> objects.Part[Any]:
    """Two lists of one kind that differ by their filters: whole only where both are."""
    return objects.Part(
        items=(*one.items, *other.items),
        unknown=one.unknown or other.unknown,
        partial=one.partial or other.partial,
        unreadable=(*one.unreadable, *other.unreadable),
    )


def _part(query: queries.Query, answer: kubectl.Answer) -> objects.Part[Any]:
    if answer.reason in ("Unreachable", "Unauthorized"):
        raise errors.Unavailable(answer.words)
    if answer.reason == "NotFound" and query.optional:
        return objects.Part()
    if answer.reason:
        return objects.Part(unknown=query.why_not(answer.reason, answer.words))
    found: objects.Part[Any] = answer.data
    return found


def _listed(query: queries.Query, text: bytes) -> objects.Part[Any]:
    namespace = query.namespace if query.instead else ""
    return reader.part(reader.items(query.read, text), query.read, namespace=namespace, partial=query.partial)


def _of(wanted: Sequence[queries.Query], kind: queries.Kind) -> queries.Query:
    return next(query for query in wanted if query.kind is kind)

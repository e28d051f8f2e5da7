"""Why not, and is there room: asked over HTTP, answered by what the API server says now.

    question --> lists of the API, kept for some seconds --> explain, in a thread --> JSON

Asks only when asked. One question at a time: counting copies books them for a moment. Who may not see a namespace gets
the same numbers, without the names of its claims.
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from api import errors
from controller import apilists
from explain import explanation, fitting, manifests, text, world
from kube import apiserver
from view import document, scope

JSON = Mapping[str, Any]
_FRESH_S = 5.0
_PODS = "/api/v1/namespaces/{}/pods"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
_KINDS = {"pod": ("Pod", _PODS), "claim": ("ResourceClaim", _CLAIMS)}


class Answers:
    """`clock` says now."""

    def __init__(self, api: apiserver.APIServer, clock: Callable[[], datetime.datetime]) -> None:
        self._api = api
        self._clock = clock
        self._one = asyncio.Lock()
        self._now: world.World | None = None
        self._until = 0.0

    async def explain(self, seen: scope.Scope, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """None where there is no such thing, or it may not be seen."""
        if kind not in _KINDS or not seen.sees(namespace):
            return None
        word, path = _KINDS[kind]
        chosen = self._api.each(path.format(namespace), fieldSelector=f"metadata.name={name}")
        items = [item async for item in chosen]
        if not items:
            return None
        item = {**items[0], "kind": word}
        async with self._one:
            now = _named(await self._world(), seen)
            told = await asyncio.to_thread(explanation.explain, item, now, _waiting(item, self._clock()))
        return _document("Explanation", told, text.of_explanation(told))

    async def fit(self, seen: scope.Scope, asked: Mapping[str, str]) -> dict[str, Any]:
        """By plain numbers: `class`, `cores`, `memory`, `count`, `replicas`. Raises Invalid for what are none."""
        try:
            cores = int(asked["cores"]) if "cores" in asked else None
            count, replicas = int(asked.get("count", 1)), int(asked.get("replicas", 0))
        except ValueError as error:
            raise errors.Invalid(f"cores, count and replicas are numbers: {error}") from error
        item = fitting.numbers(asked.get("class", ""), count=count, cores=cores, memory=asked.get("memory"))
        async with self._one:
            now = _named(await self._world(), seen)
            told = await asyncio.to_thread(fitting.fit, item, now, replicas)
        return _document("Fit", told, text.of_fit(told))

    async def fit_body(self, seen: scope.Scope, body: bytes, asked: Mapping[str, str]) -> dict[str, Any] | None:
        """By manifests, YAML or JSON, as `kubectl egpu fit -f` takes them; `replicas` and `in`, the namespace, are asked.

        None where one of them is in a namespace that may not be seen. Raises Invalid for what cannot be read or asks for no card.
        """
        namespace = asked.get("in", "default")
        try:
            replicas = int(asked.get("replicas", 0))
        except ValueError as error:
            raise errors.Invalid(f"replicas is a number: {error}") from error
        async with (
            self._one
        ):  # one at a time, the reading too: a second of processor time belongs to whoever works here
            given = await asyncio.to_thread(_documents, body)
            if not all(seen.sees(name) for name in {namespace, *manifests.namespaces(given)}):
                return None
            now = _named(await self._world(), seen)
            told = await asyncio.to_thread(manifests.fit, given, namespace, now, replicas)
        return _document("Fit", told, text.of_fit(told))

    async def _world(self) -> world.World:
        at = asyncio.get_running_loop().time()
        if self._now is None or at > self._until:
            lists, unknown = await apilists.gather(self._api)
            self._now = await asyncio.to_thread(
                world.build,
                slices=lists["slices"],
                classes=lists["device_classes"],
                claims=lists["claims"],
                nodes_=None if "nodes" in unknown else lists["nodes"],
                templates=lists["templates"],
                rules=lists["rules"],
                unknown=unknown,
            )
            self._until = asyncio.get_running_loop().time() + _FRESH_S
        return self._now


def _documents(body: bytes) -> list[Any]:
    """Without anchors, by which a small text can stand for a very large one."""
    try:
        words = body.decode()
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(words, yaml.SafeLoader)):
            raise errors.Invalid("aliases (*name) are not read here; write out what they stand for")
        return list(yaml.safe_load_all(words))
    except UnicodeDecodeError as error:
        raise errors.Invalid(f"the body is no text: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise errors.Invalid(f"the body is neither YAML nor JSON: {' '.join(str(error).split())[:300]}") from error
    except RecursionError as error:
        raise errors.Invalid("the body is nested too deep") from error


def _named(now: world.World, seen: scope.Scope) -> world.World:
    """Without the names of claims that the reader may not see; what they hold stays held."""
    if seen.namespaces is None:
        return now
    holders = {key: [one for one in found if seen.sees(one[0])] for key, found in now.holders.items()}
    return dataclasses.replace(now, holders=holders, notes=())


def _waiting(item: JSON, now: datetime.datetime) -> explanation.Waiting:
    conditions = (item.get("status") or {}).get("conditions") or ()
    refused = next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] != "True"), None)
    if refused is None or not refused.get("lastTransitionTime"):
        return explanation.Waiting()
    since = refused["lastTransitionTime"]
    tried = (now - datetime.datetime.fromisoformat(since)).total_seconds()
    return explanation.Waiting(evidence=refused.get("message") or "", since=since, tried_s=tried)


def _document(kind: str, told: explanation.Explanation | fitting.Fit, words: str) -> dict[str, Any]:
    found: dict[str, Any] = document.plain(told)
    return {"apiVersion": document.API_VERSION, "kind": kind, "text": words} | found

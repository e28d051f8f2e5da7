"""`kubectl egpu explain` and `kubectl egpu fit`: why not, and whether there is room.

    name, file or numbers --> worlds --> explain --> text, or a document

Exit codes: 0 it has its cards or fits, 1 it does not fit or is not there, 2 it cannot be told.
"""

import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from api import errors
from api.reasons import Verdict
from cli import kubectl, tables, worlds, yamlfiles
from explain import explanation, fitting, manifests, text, world
from view import document

JSON = Mapping[str, Any]
YES, NO, UNTOLD = 0, 1, 2
_KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), "pods"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "resourceclaims"),
    **dict.fromkeys(
        ("template", "templates", "resourceclaimtemplate", "resourceclaimtemplates"), "resourceclaimtemplates"
    ),
}
_CODES = {Verdict.NO: NO, Verdict.UNKNOWN: UNTOLD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`name`: `pod/x`, `claim/x`, `template/x`, or the name of a pod. `files`: manifests. Else numbers."""

    way: kubectl.Kubectl
    now: datetime.datetime
    form: str = ""
    namespace: str = ""
    quiet: bool = False
    name: str = ""
    files: Sequence[str] = ()
    class_name: str = ""
    count: int = 1
    cores: int | None = None
    memory: str | None = None
    replicas: int = 0
    out: TextIO = sys.stdout
    warnings: TextIO = sys.stderr


def explain(asked: Asked) -> int:
    item, seen, waiting = _named(asked)
    if item is None:
        return _absent(asked, seen)
    told = explanation.explain(item, seen.now, waiting)
    _warn(asked, seen)
    _print(asked, "Explanation", told, text.of_explanation(told))
    return _CODES.get(told.verdict, YES)


def fit(asked: Asked) -> int:
    """Raises Invalid for numbers that make no claim, or a file that has nothing to fit."""
    if asked.name:
        item, seen, _ = _named(asked)
        if item is None:
            return _absent(asked, seen)
        told = fitting.fit(item, seen.now, asked.replicas)
    else:
        namespace = asked.namespace or asked.way.namespace()
        seen = worlds.gather(asked.way, namespace)
        told = _unnamed(asked, namespace, seen.now)
    _warn(asked, seen)
    _print(asked, "Fit", told, text.of_fit(told))
    return _CODES.get(told.verdict, YES)


def _unnamed(asked: Asked, namespace: str, now: world.World) -> fitting.Fit:
    if asked.files:
        given = [one for name in asked.files for one in yamlfiles.documents(name)]
        try:
            return manifests.fit(given, namespace, now, asked.replicas)
        except errors.Invalid as error:
            raise errors.Invalid(f"{', '.join(asked.files)}: {error}") from error
    if asked.class_name:
        item = fitting.numbers(asked.class_name, count=asked.count, cores=asked.cores, memory=asked.memory)
        return fitting.fit(item, now, asked.replicas)
    raise errors.Invalid("say what shall fit: a name such as pod/x, -f FILE, or --class with --cores and --memory")


def pending(
    way: kubectl.Kubectl, now: datetime.datetime, pods: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Why these pods wait: (namespace, name) -> the sentence and the word. Those that cannot be told are left out."""
    paths = [worlds.one(namespace, "pods", name) for namespace, name in pods]
    spaces = {namespace for namespace, _ in pods}
    seen = worlds.gather(way, spaces.pop() if len(spaces) == 1 else "", paths)
    told = {}
    for key, answer in zip(pods, seen.more, strict=True):
        if not answer.reason:
            found = explanation.explain({"kind": "Pod", **answer.data}, seen.now, _waiting(answer.data, None, now))
            if found.verdict not in (Verdict.UNKNOWN, Verdict.SETTLED):
                sentence = found.sentence.removeprefix(f"Pod {key[0]}/{key[1]} ").rstrip(".")
                told[key] = sentence, found.reason or found.verdict.value
    return told


def _named(asked: Asked) -> tuple[JSON | None, worlds.Seen, explanation.Waiting]:
    kind, slash, name = asked.name.partition("/")
    if not slash:
        kind, name = "pod", asked.name
    if kind not in _KINDS:
        raise errors.Invalid(f"{asked.name}: neither pod/NAME nor claim/NAME nor template/NAME")
    namespace, plural = asked.namespace or asked.way.namespace(), _KINDS[kind]
    more = [worlds.one(namespace, plural, name)]
    more += [worlds.attempts(namespace, name)] if plural == "pods" else []
    seen = worlds.gather(asked.way, namespace, more)
    answer = seen.more[0]
    if answer.reason:
        return None, seen, explanation.Waiting()
    words = {"pods": "Pod", "resourceclaims": "ResourceClaim", "resourceclaimtemplates": "ResourceClaimTemplate"}
    item = {**answer.data, "kind": words[plural]}
    if plural != "pods":
        return item, seen, explanation.Waiting()
    events = seen.more[1].data.get("items") or () if not seen.more[1].reason else None
    return item, seen, _waiting(item, events, asked.now)


def _waiting(pod: JSON, events: Sequence[JSON] | None, now: datetime.datetime) -> explanation.Waiting:
    """By the scheduler's own events, which it repeats; where they may not be read, by the pod's condition."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    refused = next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] != "True"), None)
    if refused is None:
        return explanation.Waiting()
    since = refused.get("lastTransitionTime") or ""
    times = [_time(event) for event in events or ()]
    tried = max(times) if times else since
    return explanation.Waiting(
        evidence=tables.clean(refused.get("message") or ""),
        since=since,
        tried_s=(now - datetime.datetime.fromisoformat(tried)).total_seconds() if tried else None,
    )


def _time(event: JSON) -> str:
    series = (event.get("series") or {}).get("lastObservedTime") or ""
    return str(max(series, event.get("lastTimestamp") or "", event.get("eventTime") or ""))


def _absent(asked: Asked, seen: worlds.Seen) -> int:
    answer = seen.more[0]
    asked.warnings.write(f"{tables.clean(answer.words)}\n")
    return NO if answer.reason == "NotFound" else UNTOLD


def _warn(asked: Asked, seen: worlds.Seen) -> None:
    if not asked.quiet:
        asked.warnings.write("".join(f"Warning: {tables.clean(warning)}\n" for warning in seen.warnings))


def _print(asked: Asked, kind: str, told: explanation.Explanation | fitting.Fit, words: str) -> None:
    if asked.form not in ("json", "yaml"):
        asked.out.write("\n".join(map(tables.clean, words.split("\n"))))
        return
    content = {"apiVersion": document.API_VERSION, "kind": kind} | document.plain(told)
    if asked.form == "json":
        asked.out.write(json.dumps(content, indent=4, default=str) + "\n")
        return
    import yaml  # noqa: PLC0415  for this form alone

    asked.out.write(yaml.safe_dump(json.loads(json.dumps(content, default=str)), sort_keys=False, allow_unicode=True))

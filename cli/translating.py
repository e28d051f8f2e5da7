"""`kubectl egpu translate`: what old manifests become, without a cluster.

    files --> YAML documents --> translate.manifests --> what was read, as comments; templates; the documents --> stdout

It runs the very code that the webhook runs. Classes are those of the chart unless named.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from api import errors, quantity
from cli import yamlfiles
from translate import asks, manifests, pods

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`files`: paths, - for stdin. The rest is what the cluster's admin sets for the webhook."""

    files: Sequence[str]
    form: str = "yaml"
    workload_type: str = ""
    whole_class: str = ""
    share_class: str = ""
    card_memory: str = ""
    gpushare_unit: str = "GiB"


def translate(wanted: Wanted, out: TextIO = sys.stdout) -> int:
    """Prints the translation and gives the exit code. Raises Invalid where a file cannot be read or translated."""
    import yaml  # noqa: PLC0415  for this command alone

    documents = [document for name in wanted.files for document in _documents(name)]
    done = manifests.translated(documents, _setting(wanted))
    if wanted.form == "json":
        items = [*done.templates, *done.documents]
        out.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4) + "\n")
        return 0
    out.write("".join(f"# {note}\n" for note in done.notes or ("Nothing asks for a card by an old name.",)))
    out.write(yaml.safe_dump_all([*done.templates, *done.documents], sort_keys=False, allow_unicode=True))
    return 0


def _documents(name: str) -> Iterator[dict[str, Any]]:
    for document in yamlfiles.documents(name):
        if document is not None and not isinstance(document, dict):
            raise errors.Invalid(f"{name} holds {type(document).__name__} where a Kubernetes object should be")
        if document is not None:
            yield document


def _setting(wanted: Wanted) -> pods.Setting:
    renamed = {"training": wanted.whole_class, "inference": wanted.share_class}
    classes = tuple(
        dataclasses.replace(of, name=renamed.get(of.workload_types[0]) or of.name) for of in pods.READY_MADE
    )
    memory = int(quantity.parse(wanted.card_memory)) // _MIB if wanted.card_memory else 0
    return pods.Setting(
        classes=classes,
        workload_type=wanted.workload_type,
        units=asks.Units(card_memory_mib=memory, gpushare_mib=1 if wanted.gpushare_unit == "MiB" else 1024),
    )

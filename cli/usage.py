"""What node drivers say of use, in Prometheus' text form -> numbers by card and by claim.

A series that is not there is not known, and never 0.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api import names

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)\{(?P<labels>.*)\} (?P<value>\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_CARD = names.METRIC_PREFIX + "card_memory_used_bytes"
_MEMORY = names.METRIC_PREFIX + "claim_memory_used_bytes"
_CORES = names.METRIC_PREFIX + "claim_cores_used_percent"
Share = tuple[str, str, str]
"""(claim uid, device, request)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """`cards`: bytes by UUID. `memory` and `cores`: of each claim on each of its cards."""

    cards: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[Share, int] = field(default_factory=dict)
    cores: Mapping[Share, float] = field(default_factory=dict)


def read(texts: Iterable[str]) -> Used:
    cards: dict[str, int] = {}
    memory: dict[Share, int] = {}
    cores: dict[Share, float] = {}
    for text in texts:
        for line in _LINE.finditer(text):
            if line["name"] not in (_CARD, _MEMORY, _CORES):
                continue
            labels = {key: _ESCAPE.sub(_meant, value) for key, value in _LABEL.findall(line["labels"])}
            value = float(line["value"])
            if line["name"] == _CARD:
                cards[labels.get("card_uuid", "")] = int(value)
                continue
            share = (labels.get("claim_uid", ""), labels.get("device", ""), labels.get("request", ""))
            if line["name"] == _MEMORY:
                memory[share] = memory.get(share, 0) + int(value)
            else:
                cores[share] = cores.get(share, 0.0) + value
    return Used(cards=cards, memory=memory, cores=cores)


def _meant(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]

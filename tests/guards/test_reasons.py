"""One thing has one word: reasons come from the one list, wherever they are told."""

import ast
import re
from collections import defaultdict
from enum import StrEnum
from pathlib import Path

import pytest

from api import reasons

ROOT = Path(__file__).parents[2]
LISTS = [
    one for one in vars(reasons).values() if isinstance(one, type) and issubclass(one, StrEnum) and one is not StrEnum
]
TELLING = (
    "controller/allotment.py", "controller/announcer.py", "controller/classes.py", "controller/gpus.py",
    "controller/matching.py", "controller/metrics.py", "controller/notices.py", "controller/pools.py",
    "controller/telling.py", "explain/chain.py", "explain/explanation.py", "explain/fitting.py", "explain/funnel.py",
    "explain/places.py", "explain/reasons.py", "explain/text.py", "view/problems.py", "view/users.py",
    "cli/explaining.py", "cli/sheets.py", "cli/sums.py", "cli/checks.py", "cli/lendingchecks.py",
)  # fmt: skip
KINDS = {
    "DeviceClass", "ElasticGPU", "ElasticGPUClass", "Event", "Explanation", "Fit", "List", "Node", "Numbers", "Pod", "RemotePool", "Request",
    "ResourceClaim", "ResourceClaimTemplate",
}  # fmt: skip
"""Objects, of the API and of ours."""
STATES = {
    "Allocated", "Deleting", "Exists", "Failed", "InUse", "Pending", "Running", "Succeeded", "Waiting",
    "Attached", "Attaching", "Lost", "Releasing",
    "Free", "Partly", "Held", "Blocked", "Unknown", "True", "False", "Normal", "Warning",
    "Ok", "Wrong", "Absent", "NoSchedule", "NoExecute",
}  # fmt: skip
"""What something is, not why."""
TYPES = {"Healthy", "PodScheduled", "Published", "Retained", "UsedAsBooked"}
"""Of conditions."""
OTHERS = {
    "Known", "Create", "Change", "Delete", "Report", "Apply", "Remove", "TemplateCreate", "TemplateDelete",
    "Intend", "Attach", "Move", "Tell", "Detach", "Verify", "Forget", "Other", "NotFound",
}  # fmt: skip
"""Writes and actions of the series, an annotation, a word of the API server's."""


@pytest.mark.parametrize("path", TELLING)
def test_no_word_of_its_own_is_in_what_tells_reasons(path: str) -> None:
    found = {
        node.value
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)*", node.value)
    }
    assert found - KINDS - STATES - TYPES - OTHERS == set()


def test_a_word_stands_for_one_thing_and_another_list_has_it_by_reference_alone() -> None:
    """Else two lists would come to have the same word for two things."""
    written: defaultdict[str, list[str]] = defaultdict(list)
    for node in ast.walk(ast.parse((ROOT / "api/reasons.py").read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            written[str(node.value.value)].append(ast.unparse(node.targets[0]))
    assert {word: places for word, places in written.items() if len(places) > 1} == {}
    assert {one.value for each in LISTS for one in each} == written.keys()


def test_what_the_documents_say_that_reasons_are_called_is_in_the_list() -> None:
    words = {one.value for each in LISTS for one in each}
    text = (ROOT / "controller/README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith(("| Accepted |", "| Matching |", "| Ready |"))]
    told = {word for row in rows for word in re.findall(r"`([A-Z][A-Za-z]+)`", row)}
    assert told == {one.value for one in reasons.Class}
    assert {"WaitsForCard", "NotAllocated", "NeverFits"} <= words

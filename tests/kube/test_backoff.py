"""How long is waited after failures."""

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kube import backoff

FIRSTS = st.floats(0.01, 5.0)


@given(FIRSTS, st.floats(5.0, 600.0), st.integers(0, 10**6))
def test_pauses_double_up_to_the_longest_however_many_failures_there_were(
    first_s: float, most_s: float, failures: int
) -> None:
    now_s, next_s = (backoff.pause_s(first_s, most_s, number) for number in (failures, failures + 1))
    assert now_s <= next_s == min(2 * now_s, most_s)
    assert now_s >= first_s
    pauses = backoff.Backoff(first_s, most_s, failures)
    assert now_s / 2 <= pauses.next_s() <= now_s
    pauses.reset()
    assert pauses.next_s() <= first_s


def test_nobody_else_raises_two_to_a_number_of_failures() -> None:
    """A float times 2**1024 is an OverflowError, after three to nine hours in which one thing fails."""
    root = Path(__file__).parents[2]
    sources = [path for folder in ("controller", "kubeletplugin", "webhook") for path in (root / folder).glob("*.py")]
    raised = [
        f"{path.parent.name}/{path.name}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and "failures" in ast.unparse(node.right)
    ]
    assert raised == []

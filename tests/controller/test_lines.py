"""Who waits stands in line with those that ask alike; the order over all lines is that of one queue."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from controller import lines


@dataclass(frozen=True, kw_only=True)
class Want:
    key: str
    created: str
    line: str
    priority: int = 0

    @property
    def order(self) -> lines.Order:
        return (-self.priority, self.created, self.key)

    @property
    def together(self) -> bool:
        return self.line == "gang"


WANTS = st.builds(
    Want,
    key=st.integers(0, 9).map(str),
    created=st.just("2026-01-01"),
    line=st.sampled_from(["a", "b", "gang"]),
)
STEPS = st.lists(st.one_of(WANTS, st.integers(0, 9).map(str), st.none()), max_size=60)


@given(STEPS)
def test_whatever_came_and_went_all_that_wait_come_in_order_a_gang_with_its_first(
    steps: list[Want | str | None],
) -> None:
    found: lines.Lines[Want] = lines.Lines()
    known: dict[str, Want] = {}
    for step in [*steps, None]:
        match step:
            case Want():
                found.put(step)
                known[step.key] = step
            case str():
                found.drop(step)
                known.pop(step, None)
            case None:
                queue = sorted(known.values(), key=lambda want: want.order)
                gang = tuple(want for want in queue if want.together)
                expected = [(want,) if not want.together else gang for want in queue if want not in gang[1:]]
                assert [wants for _, wants in found.march(())] == expected
                assert {name for name in ("a", "b", "gang") if name in found} == {want.line for want in queue}


def test_a_line_that_is_passed_over_is_left_and_the_others_go_on() -> None:
    found: lines.Lines[Want] = lines.Lines()
    for number in range(6):
        found.put(Want(key=str(number), created=str(number), line="ab"[number % 2]))
    passed: set[object] = set()
    seen = []
    for line, (want,) in found.march(passed):
        seen.append(want.key)
        if want.key == "2":
            passed.add(line)
    assert seen == ["0", "1", "2", "3", "5"]
    assert found.keys("a") == ("0", "2", "4")
    assert [want.key for want in found.first("b", 2)] == ["1", "3"]


def test_who_is_more_important_comes_first_whatever_line_it_stands_in() -> None:
    found: lines.Lines[Want] = lines.Lines()
    found.put(Want(key="old", created="1", line="a"))
    found.put(Want(key="urgent", created="9", line="a", priority=5))
    found.put(Want(key="middle", created="5", line="b", priority=1))
    assert [want.key for _, (want,) in found.march(())] == ["urgent", "middle", "old"]

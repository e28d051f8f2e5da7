"""Values as text."""

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import settings, sheets, tables
from cli.tables import Cell, Column
from tests.view.objects import a_card, a_slice, view

NOW = datetime.datetime(2026, 1, 10, tzinfo=datetime.UTC)
COLUMNS = (Column(title="A"), Column(title="B", right=True, optional=True), Column(title="C", wide=True))


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_where_text_ends() -> None:
    assert (
        tables.table(COLUMNS, [("long name", "1", "x"), ("n", "100", "y")])
        == "A            B\nlong name    1\nn          100\n"
    )


def test_wide_shows_all_and_a_narrow_terminal_what_fits() -> None:
    rows = [("name", "value", "x")]
    assert tables.table(COLUMNS, rows, wide=True, width=8).splitlines()[0] == "A         B  C"
    assert tables.table(COLUMNS, rows, width=8) == "A\nname\n"
    assert tables.table(COLUMNS, rows, width=3) == "A\nname\n"


def test_colours_do_not_move_columns() -> None:
    text = tables.table(COLUMNS[:2], [(Cell(text="x", colour="red"), "1")], colour=True, headers=False)
    assert text == "\033[31mx\033[0m  1\n"


cells = st.one_of(
    st.text("a%s \x1b\u202e\n", max_size=6),
    st.builds(lambda text: Cell(text=text, colour="red"), st.text("b%d ", max_size=4)),
)


@given(st.lists(st.tuples(cells, cells, cells), max_size=4), st.booleans(), st.booleans())
def test_with_colours_and_without_the_same_is_shown(
    rows: list[tuple[str | Cell, ...]], headers: bool, wide: bool
) -> None:
    plain, painted = (
        tables.table(COLUMNS, rows, colour=colour, headers=headers, wide=wide) for colour in (False, True)
    )
    assert re.sub(r"\033\[\d+m", "", painted) == plain
    assert all(line == line.rstrip() and (line.isprintable()) for line in plain.splitlines())
    assert len(plain.splitlines()) == len(rows) + headers


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("node-1", "node-1"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb", "a\\nb"),
        ("größe", "größe"),
    ],
)
def test_no_name_can_paint_over_a_terminal(name: str, shown: str) -> None:
    assert tables.table([Column(title="N")], [(name,)], headers=False) == f"{shown}\n"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "<unknown>"),
        (0, "0"),
        (80 * 2**30, "80GiB"),
        (45 * 2**29, "22.5GiB"),
        (512 * 2**20, "512MiB"),
        (100, "100"),
    ],
)
def test_sizes_have_the_unit_in_which_they_are_short(amount: int | None, text: str) -> None:
    assert tables.size(amount) == text


@pytest.mark.parametrize(
    ("since", "text"),
    [
        ("2026-01-09T23:59:20Z", "40s"), ("2026-01-09T23:55:00Z", "5m"), ("2026-01-09T04:00:00Z", "20h"),
        ("2026-01-06T20:00:00Z", "3d4h"), ("2025-12-01T00:00:00Z", "40d"), ("2026-01-11T00:00:00Z", "0s"), ("", "<unknown>"),
    ],
)  # fmt: skip
def test_ages_read_as_kubectl_has_them(since: str, text: str) -> None:
    assert tables.age(since, NOW) == text


def test_a_bar_shows_the_least_part_and_is_full_only_when_all_is_taken() -> None:
    bars = [
        tables.bar(0, 4, 4),
        tables.bar(1, 100, 4),
        tables.bar(99, 100, 4),
        tables.bar(4, 4, 4),
        tables.bar(0, 0, 4),
    ]
    assert bars == ["[....]", "[#...]", "[###.]", "[####]", "[....]"]


def test_a_long_list_says_how_many_more_there_are() -> None:  # radar PR#878
    assert tables.listed("abcde", 3) == "a,b,c and 2 more"
    assert tables.listed(()) == "<none>"


def test_short_names_tell_cards_apart() -> None:
    cards = [a_card(1), a_card(2) | {"name": "gpu-8a1f6c52-x-d101"}, a_card(3) | {"name": "gpu-8a1f6c52-x-d102"}]
    cards += [a_card(4) | {"name": "gpu-77777777-a-d101"}, a_card(5) | {"name": "gpu-77777777-b-d101"}]
    names = sheets.short_names(view(a_slice(*cards)).cards)
    assert list(names.values()) == ["gpu-00000001", "gpu-8a1f6c52..d101", "gpu-8a1f6c52..d102"]


@pytest.mark.parametrize(
    ("wish", "environment", "terminal", "coloured"),
    [
        ("auto", {}, True, True), ("auto", {}, False, False), ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True), ("auto", {"CLICOLOR": "0"}, True, False), ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True), ("never", {}, True, False),
    ],
)  # fmt: skip
def test_colour_is_for_terminals_whose_user_wants_it(
    wish: str, environment: dict[str, str], terminal: bool, coloured: bool
) -> None:
    assert settings.coloured(wish, environment, terminal=terminal) is coloured

"""The replay of a trace says what was handed out and who was refused."""

from pathlib import Path

import pytest

from allocation import policies
from hack.measure import openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\none,64000,262144,8,A\ntwo,64000,262144,8,A\n"


def a_trace(folder: Path, *pods: tuple[int, int, int]) -> Path:
    """Pods by cards, thousandths of each, and CPU."""
    (folder / "openb_node_list_gpu_node.csv").write_text(NODES)
    rows = [f"p{number},{cpu},1024,{cards},{milli}" for number, (cards, milli, cpu) in enumerate(pods)]
    text = "\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows])
    (folder / "openb_pod_list_default.csv").write_text(text + "\n")
    return folder


def test_pods_that_fill_all_cards_fill_them_and_the_first_one_beyond_is_refused(tmp_path: Path) -> None:
    run = openb.replay(a_trace(tmp_path, *[(1, 125, 100)] * 128), "default", policies.Policy.LEAST_FRAGMENTATION, 1)
    assert run.at[1.0] == pytest.approx(100, abs=2)
    assert run.at[1.3] == pytest.approx(100)
    assert run.first_refused > 100


def test_eight_card_pods_that_find_no_whole_node_are_counted(tmp_path: Path) -> None:
    run = openb.replay(a_trace(tmp_path, *[(8, 1000, 1000)] * 3), "default", policies.Policy.BIN_PACK, 1)
    assert (run.refused, run.of) == (1, 3)


def test_eight_card_pods_that_ask_when_the_cards_are_gone_are_told_apart(tmp_path: Path) -> None:
    """The third pod finds two nodes full and is late; where no node has the CPU for any of them, the others were not late."""
    taken = openb.replay(a_trace(tmp_path, *[(8, 1000, 1000)] * 3), "default", policies.Policy.BIN_PACK, 1)
    never = openb.replay(a_trace(tmp_path, *[(8, 1000, 99_000)] * 3), "default", policies.Policy.BIN_PACK, 1)
    assert [(run.refused, run.late) for run in (taken, never)] == [(1, 1), (3, 1)]


def test_what_was_promised_of_a_trace_is_a_bound_of_its_figures(tmp_path: Path) -> None:
    told = list(openb.measured(a_trace(tmp_path, *[(1, 125, 100)] * 128), ["default"], seeds=2))
    kept = {figure.name: figure.kept for figure in told if figure.kept is not None}
    assert len(kept) == 4
    assert all(kept.values())

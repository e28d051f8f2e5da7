"""What is remembered of an instance: real files, real locks, real processes; no cluster."""

import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster import cards, cluster, errors, lifecycle, nodes, paths, processes, state


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def an_instance(name="one", number=3):
    members = (state.Node(name="node1", index=1, cards=2), state.Node(name="node2", index=2, cards=0))
    return state.Instance(name=name, number=number, kubernetes="v1.37.2", bin=Path("/bin"), nodes=members)


def test_an_instance_reads_back_as_it_was_saved():
    state.save(an_instance())
    assert state.load("one") == an_instance()
    assert state.names() == ("one",)


def test_an_instance_that_has_not_come_up_is_not_found():
    state.save(an_instance())
    assert cluster.Cluster.find("one") is None


def test_nothing_is_known_where_nothing_was_made():
    assert state.names() == ()
    assert state.load("one") is None
    lifecycle.down("one")


def test_a_directory_without_an_instance_is_cleared_by_down():
    (paths.clusters() / "half").mkdir(parents=True)
    lifecycle.down("half")
    assert state.names() == ()


def test_a_lock_keeps_another_process_out_and_leaves_no_empty_directory():
    directory = paths.clusters() / "one"
    with state.locked(directory):
        other = multiprocessing.get_context("spawn").Process(target=_enter, args=(directory,))
        other.start()
        other.join(1.5)
        assert other.is_alive()
        (directory / "kept").touch()
    other.join(120)
    assert (directory / "kept").read_text() == "entered"
    (directory / "kept").unlink()
    with state.locked(directory):
        pass
    assert not directory.exists()


def _enter(directory: Path) -> None:
    with state.locked(directory):
        (directory / "kept").write_text("entered")


def test_a_program_is_found_again_and_ended(tmp_path):
    pid = processes.start(a_program(tmp_path))
    assert processes.running(tmp_path, "sleeper") == pid
    assert processes.start(a_program(tmp_path)) == pid
    assert processes.known(tmp_path) == ("sleeper",)
    processes.stop(tmp_path, "sleeper")
    assert processes.running(tmp_path, "sleeper") is None
    processes.stop(tmp_path, "sleeper")


def test_a_reused_pid_is_neither_taken_for_the_program_nor_ended(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stored = Path(f"/proc/{stranger.pid}/stat").read_text().split()
        stored[21] = str(int(stored[21]) - 1)
        (tmp_path / "pids").mkdir()
        (tmp_path / "pids" / "sleeper").write_text(" ".join(stored))
        assert processes.running(tmp_path, "sleeper") is None
        processes.stop(tmp_path, "sleeper")
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.wait()


def test_a_program_that_does_not_listen_is_killed(tmp_path):
    processes.start(a_program(tmp_path, "sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    processes.stop(tmp_path, "sleeper", patience_s=0.2)
    assert processes.running(tmp_path, "sleeper") is None


def a_program(directory, *argv):
    return processes.Program(
        directory=directory, name="sleeper", argv=argv or ("sleep", "60"), group=a_group(directory)
    )


def a_group(directory):
    """A plain directory takes the pid as well as a cgroup does."""
    (directory / "group").mkdir(exist_ok=True)
    return directory / "group"


def test_the_tail_of_a_log_prefers_what_went_wrong(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("I0101 fine\nE0101 broken\nI0101 fine again\n")
    assert processes.tail(log) == "E0101 broken"
    log.write_text("first\nlast\n")
    assert processes.tail(log, lines=1) == "last"
    assert "does not exist" in processes.tail(tmp_path / "y.log")


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/var/run/cdi/a.json", "run/cdi/a.json"),
        ("/run", "run"),
        ("/var/lib/kubelet", "lib/kubelet"),
        ("/var/log/pods", "log/pods"),
    ],
)
def test_a_nodes_own_files_are_seen_on_the_machine(inside, outside):
    instance = an_instance()
    assert nodes.host_path(instance, instance.nodes[0], inside) == instance.directory / "node1" / outside


@pytest.mark.parametrize("path", ["/etc/passwd", "/runner/x", "/var/libexec"])
def test_a_path_that_is_not_a_nodes_own_is_refused(path):
    instance = an_instance()
    with pytest.raises(errors.ClusterError, match="a node's own files"):
        nodes.host_path(instance, instance.nodes[0], path)


def test_an_unknown_node_is_refused_with_the_names_of_the_others():
    with pytest.raises(errors.ClusterError, match="no node node9, only node1, node2"):
        an_instance().node("node9")


def test_a_state_directory_that_nodes_could_not_see_is_refused(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib/somebody")
    with pytest.raises(errors.ClusterError, match="XDG_STATE_HOME"):
        paths.clusters()


def test_cards_have_the_same_uuids_each_time_and_no_two_share_one():
    first, second = an_instance().nodes[0], state.Node(name="node2", index=2, cards=2)
    assert cards.cards_file("one", first) == cards.cards_file("one", first)
    texts = [cards.cards_file(name, node) for name in ("one", "two") for node in (first, second)]
    uuids = [word for text in texts for word in text.split() if word.startswith("uuid=")]
    assert len(set(uuids)) == len(uuids) == 8

"""What the demo says of what it sees, without a cluster."""

from pathlib import Path
from typing import Any

import pytest

from hack import borrowing, sights
from hack.cluster import Cluster, errors, state
from hack.kubectl import Kubectl


def a_claim(name: str, *devices: str) -> dict[str, Any]:
    results = [{"request": "share", "pool": "egpu/node1", "device": device} for device in devices]
    return {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": results}}} if devices else {}}


def test_two_shares_on_one_card_are_told_with_that_card() -> None:
    assert sights.shared_card([a_claim("a", "gpu-1"), a_claim("b", "gpu-1")]) == "egpu/node1/gpu-1"


@pytest.mark.parametrize(
    "claims",
    [
        [a_claim("a", "gpu-1"), a_claim("b", "gpu-2")],
        [a_claim("a", "gpu-1"), a_claim("b")],
        [a_claim("a", "gpu-1")],
        [],
    ],
    ids=["two cards", "one waits", "one alone", "none"],
)
def test_the_demo_fails_where_shares_do_not_stand_on_one_card(claims: list[dict[str, Any]]) -> None:
    with pytest.raises(errors.ClusterError, match="not stand on one card"):
        sights.shared_card(claims)


def test_where_ggml_cannot_be_fetched_the_demo_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is done then: neither this cluster nor this kubectl exists."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    instance = state.Instance(name="none", number=0, kubernetes="v1", bin=tmp_path, nodes=())
    nobody = Kubectl(program=str(tmp_path / "kubectl"), kubeconfig=tmp_path / "config")
    borrowing.run(Cluster(instance=instance), nobody, {}, tmp_path / "image", "namespace")
    said = capsys.readouterr().out
    assert "goes on without a card of another machine: ggml cannot be built" in said
    assert "ggml-python==" in said
    assert not [path for path in (tmp_path / "elastic-gpu").iterdir() if path.name.startswith("ggml")]

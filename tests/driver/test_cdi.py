"""The spec file of a claim, against golden text and the rules of CDI."""

import json
from typing import Any

import pytest

from api import errors, resource
from driver import cdi, records

UID = resource.ClaimUID("0b7c4d1e-7c2f-4f0e-9d3c-2f6f1a9f6f10")
CARD = "GPU-00000000-0000-4000-8000-000000000000"
GENERATED: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": CARD, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia3", "major": 195, "minor": 3}]}},
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
        "mounts": [{"hostPath": "/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1"}],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook"]}],
    },
}


def _holding(**more: Any) -> records.Holding:
    facts: dict[str, Any] = {"request": "gpu", "pool": "p", "device": "gpu-0", "card": CARD, "minor": 3}
    return records.Holding(**{**facts, **more})


def test_a_claim_gets_the_common_edits_and_those_of_its_card() -> None:
    common, devices = cdi.split(GENERATED)
    spec = json.loads(cdi.of_claim(UID, common, [(_holding(), devices[CARD])]))
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.elasticgpu.io/claim",
        "devices": [
            {
                "name": f"{UID}-gpu-gpu-0",
                "containerEdits": {
                    "env": [f"ELASTIC_GPU_CARD_3={CARD}"],
                    "deviceNodes": [{"path": "/dev/nvidia3", "major": 195, "minor": 3}],
                },
            }
        ],
        "containerEdits": {
            **GENERATED["containerEdits"],
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib"],
        },
    }


def test_names_tell_shares_of_one_card_apart_and_leave_subrequests_out() -> None:
    names = {
        cdi.qualified(UID, _holding(request="gpu/big")),
        cdi.qualified(UID, _holding(request="gpu", share_id="a")),
        cdi.qualified(UID, _holding(request="gpu", share_id="b")),
    }
    assert names == {f"k8s.gpu.elasticgpu.io/claim={UID}-gpu-gpu-0{end}" for end in ("", "-a", "-b")}


def test_a_device_that_would_give_nothing_is_refused() -> None:
    """NV#1144: runtimes refuse "empty device edits"."""
    with pytest.raises(errors.NotReady, match="empty device edits"):
        cdi.of_claim(UID, cdi.Edits(), [(_holding(), cdi.Edits())])


@pytest.mark.parametrize(
    ("rest", "version"),
    [({}, "0.5.0"), ({"additionalGids": [44]}, "0.7.0"), ({"intelRdt": {}}, "0.5.0"), ({"netDevices": [{}]}, "1.1.0")],
)
def test_the_version_is_the_lowest_that_knows_the_fields(rest: dict[str, Any], version: str) -> None:
    edits = {"deviceNodes": [{"path": "/dev/nvidia3"}], **rest}
    _, devices = cdi.split({"devices": [{"name": "x", "containerEdits": edits}]})
    assert json.loads(cdi.of_claim(UID, cdi.Edits(), [(_holding(), devices["x"])]))["cdiVersion"] == version


@pytest.mark.parametrize("missing", ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"])
def test_what_is_lacking_is_named(missing: str) -> None:
    paths = ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    edits = cdi.Edits(device_nodes=tuple({"path": path} for path in paths if path != missing))
    assert cdi.lacking(edits, cdi.Edits(), 3) == f"the host has no {missing}"
    assert not cdi.lacking(edits, cdi.Edits(device_nodes=({"path": missing},)), 3)


@pytest.mark.parametrize(
    "spec", [{"devices": [{}]}, {"devices": [3]}, {"devices": [{"name": "x", "containerEdits": 1}]}]
)
def test_what_is_no_spec_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid, match="unexpected shape"):
        cdi.split(spec)

"""What an operator can set."""

import dataclasses
from pathlib import Path

import pytest

from api import errors
from driver import settings


def test_each_variable_is_read_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "NODE_NAME": "n",
        "CDI_DIR": "/etc/cdi",
        "DEV_ROOT": "/host",
        "POLL_S": "0.5",
        "METRICS_PORT": "0",
        "LOST_EVICTS": "true",
    }.items():
        monkeypatch.setenv(f"EGPU_{name}", text)
    chosen = settings.load()
    assert (chosen.node_name, chosen.cdi_dir, chosen.dev_root) == ("n", Path("/etc/cdi"), Path("/host"))
    assert (chosen.poll_s, chosen.metrics_port, chosen.lost_evicts) == (0.5, 0, True)
    assert chosen.pod_uid == ""


def test_all_that_is_wrong_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "LOST_EVICTS": "yes",
        "POLL_S": "-1",
        "METRICS_PORT": "http",
        "REPAIR_S": "0",
        "SWEEP_S": "nan",
        "NVML_LIMIT_S": "inf",
    }.items():
        monkeypatch.setenv(f"EGPU_{name}", text)
    with pytest.raises(errors.Invalid) as wrong:
        settings.load()
    for text in ("EGPU_NODE_NAME is not set", "EGPU_LOST_EVICTS='yes'", "EGPU_POLL_S='-1'", "EGPU_METRICS_PORT='http'"):
        assert text in str(wrong.value)
    for text in ("EGPU_REPAIR_S='0': out of range", "EGPU_SWEEP_S='nan'", "EGPU_NVML_LIMIT_S='inf'"):
        assert text in str(wrong.value)


def test_a_port_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGPU_NODE_NAME", "n")
    monkeypatch.setenv("EGPU_METRICS_PORT", "70000")
    with pytest.raises(errors.Invalid, match="EGPU_METRICS_PORT='70000': out of range"):
        settings.load()


def test_every_setting_is_described() -> None:
    text = settings.described()
    for item in dataclasses.fields(settings.Settings):
        assert f"EGPU_{item.name.upper()} (" in text
    assert text.count("\n    ") >= len(dataclasses.fields(settings.Settings))

"""Whole cards keep the contract of backends."""

from typing import Any

import pytest

from driver import cdi, inventory
from driver.backends import whole
from tests.contract import backend_suite

CARD = inventory.Card(uuid=inventory.CardUUID("GPU-0"), minor=0, product_name="NVIDIA L4")


def _host(**edits: Any) -> cdi.HostEdits:
    return cdi.HostEdits(cards={"GPU-0": cdi.Edits(device_nodes=({"path": "/dev/nvidia0"},), **edits)})


class TestWhole(backend_suite.BackendSuite):
    @pytest.fixture
    def subject(self) -> backend_suite.Subject:
        return backend_suite.Subject(backend=whole.Whole(), card=CARD, host=_host())

    def test_the_hook_for_memory_limits_is_left_out(self, subject: backend_suite.Subject) -> None:
        kept = {"path": "/hook", "args": ["nvidia-cdi-hook", "create-symlinks"]}
        limits = {"path": "/hook", "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits"]}
        (holding,) = subject.record().holdings
        assert subject.backend.edits(holding, _host(hooks=(kept, limits))).hooks == (kept,)

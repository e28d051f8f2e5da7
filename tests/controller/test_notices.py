"""What is said on pods and claims: once, when it is new, and never in floods."""

import asyncio
import dataclasses
import datetime
from pathlib import Path

import pytest

from api import reasons
from controller import notices, remote
from tests.cli.conftest import put
from tests.controller.test_observing import running
from tests.fakes.apiserver import FakeAPIServer
from tests.view.objects import (
    JSON,
    THEN,
    a_card,
    a_claim,
    a_device_class,
    a_far_claim,
    a_far_slice,
    a_pod,
    a_result,
    a_slice,
    name_of,
    seen,
)
from view import join, objects

NOW = datetime.datetime(2026, 1, 1, 0, 6, 0, tzinfo=datetime.UTC)
LOST = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:05:00Z"}


def those_due(
    found: objects.Objects, said: notices.Known, at: datetime.datetime, answers: notices.Answers | None = None
) -> list[notices.Notice]:
    held = notices.wanted(join.View(found), found, at, answers or notices.Answers())
    return list(notices.due(held, found, said, at))


def due(*given: JSON, said: notices.Known | None = None, at: datetime.datetime = NOW) -> list[notices.Notice]:
    found = seen(*given)
    return those_due(found, said or {}, at)


def said_of(notice: notices.Notice, at: datetime.datetime = NOW) -> notices.Known:
    return {notice.key: notices.Said(stem=notice.stem, first=at, at=at)}


def a_waiting_pod(since: str = "2026-01-01T00:05:00Z") -> tuple[JSON, ...]:
    condition = {"type": "PodScheduled", "status": "False", "message": "m", "lastTransitionTime": since}
    return (
        a_claim("wish"),
        a_pod("patient", claim="wish", phase="Pending", status={"conditions": [condition]}),
        a_device_class(),
    )


def later(seconds: int) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def test_a_pod_that_waits_is_told_why() -> None:  # HAMi#2286
    (notice,) = due(a_slice(a_card()), *a_waiting_pod())
    assert (notice.kind, notice.name, notice.reason) == ("Pod", "patient", "WaitsForCard")
    assert notice.message == "claim wish waits for a card of class training.elasticgpu.io; of 1 cards 1 free"


def test_a_pod_that_waits_for_seconds_is_told_nothing() -> None:
    assert due(a_slice(a_card()), *a_waiting_pod("2026-01-01T00:05:55Z")) == []


def test_other_numbers_are_no_news_another_reason_is_and_after_an_hour_it_is_said_again() -> None:
    (notice,) = due(a_slice(a_card()), *a_waiting_pod())
    assert due(a_slice(a_card(1), a_card(2)), *a_waiting_pod(), said=said_of(notice), at=later(120)) == []
    _, pod, device_class = a_waiting_pod()
    assert len(due(a_slice(a_card()), pod, device_class, said=said_of(notice), at=later(120))) == 1
    assert due(a_slice(a_card()), pod, device_class, said=said_of(notice), at=later(30)) == []
    assert len(due(a_slice(a_card()), *a_waiting_pod(), said=said_of(notice), at=later(3700))) == 1


def test_a_pod_that_got_its_card_is_told_which_and_only_once() -> None:
    world = (a_slice(a_card()), a_claim("c", a_result(), pods=("pod",)), a_pod(claim="c"))
    (notice,) = due(*world)
    assert (notice.normal, notice.reason) == (True, "CardsAssigned")
    assert "card gpu-00000001-0d4e-4f7b-9c31-5e2b7a90d101 (NVIDIA H100 80GB HBM3: 81920 MiB)" in notice.message
    assert due(*world, said=said_of(notice), at=later(4000)) == []


def test_a_controller_that_starts_says_nothing_of_cards_that_were_got_long_ago() -> None:
    assert due(a_slice(a_card()), a_claim("c", a_result(), pods=("pod",)), a_pod(claim="c"), at=later(3600)) == []


def test_a_pod_that_the_allocator_answers_is_not_told_a_second_reason_and_again_only_after_an_hour() -> None:
    found = seen(a_slice(a_card()), *a_waiting_pod())
    (waits,) = those_due(found, {}, NOW)
    refused = dataclasses.replace(waits, reason=reasons.Event.REFUSED, message="no room on 2 nodes", since="")
    answers = notices.Answers(notices=[refused])
    assert those_due(found, {}, NOW, answers) == [refused]
    assert those_due(found, said_of(refused), later(3599), answers) == []
    assert those_due(found, said_of(refused), later(3600), answers) == [refused]


def test_a_pod_behind_the_first_of_those_that_the_allocator_answers_alike_is_told_nothing_else() -> None:
    found = seen(a_slice(a_card()), *a_waiting_pod())
    answers = notices.Answers(uids=frozenset({"uid-patient"}))
    assert those_due(found, {}, NOW, answers) == []


def test_of_a_namespace_those_pods_that_wait_longest_are_told_and_another_namespace_is_not_behind_them() -> None:
    wish, pod, device_class = a_waiting_pod()
    conditions = pod["status"]["conditions"]

    def waiting(number: int, namespace: str) -> JSON:
        told = [conditions[0] | {"lastTransitionTime": f"2026-01-01T00:0{number % 5}:00Z"}]
        meta = {**pod["metadata"], "name": f"p{number}", "uid": f"{namespace}-{number}", "namespace": namespace}
        return pod | {"metadata": meta, "status": pod["status"] | {"conditions": told}}

    crowd = [waiting(number, "ml") for number in range(400)]
    other = {**wish, "metadata": {**wish["metadata"], "namespace": "web", "uid": "w"}}
    found = due(a_slice(a_card()), device_class, wish, other, *crowd, waiting(4, "web"))
    assert {notice.uid for notice in found} >= {"web-4"}
    assert {int(notice.name[1:]) % 5 for notice in found if notice.namespace == "ml"} == {0}
    assert len(found) == 65


def test_each_pod_on_a_tainted_card_is_told() -> None:
    world = (
        a_slice(a_card(taints=[LOST])),
        a_claim("c", a_result(), pods=("a", "b")),
        a_pod("a", claim="c"),
        a_pod("b", claim="c"),
    )
    found = [notice for notice in due(*world) if notice.reason == "CardTainted"]
    assert [(notice.name, notice.uid) for notice in found] == [("a", "uid-a"), ("b", "uid-b")]


def test_a_claim_that_nobody_uses_is_told_after_five_minutes_with_the_command() -> None:
    world = (a_slice(a_card()), a_claim("leak", a_result()))
    assert due(*world, at=later(200)) == []
    (notice,) = due(*world, at=later(300))
    assert (notice.kind, notice.name) == ("ResourceClaim", "leak")
    assert notice.message.endswith("kubectl delete resourceclaim leak -n ml")


@pytest.mark.parametrize("kind", ["slices", "claims", "pods"])
def test_nothing_is_said_of_what_was_not_read(kind: str) -> None:
    from view import objects

    found = dataclasses.replace(seen(a_slice(a_card()), *a_waiting_pod()), **{kind: objects.Part(unknown="forbidden")})
    assert those_due(found, {}, NOW) == []


async def test_an_event_is_one_object_that_counts_up(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        put(server, a_slice(a_card()), a_device_class(), *a_waiting_pod())
        async with running(server, tmp_path):
            await server.until(lambda: server.list("events"), within_s=60)
        (event,) = server.list("events")
        assert event["involvedObject"]["name"] == "patient"
        assert (event["reason"], event["type"], event["count"]) == ("WaitsForCard", "Warning", 1)


async def test_a_thousand_waiting_pods_are_ten_events_a_second(tmp_path: Path) -> None:
    async with FakeAPIServer() as server:
        _, pod, device_class = a_waiting_pod()
        many = [
            {**pod, "metadata": {**pod["metadata"], "name": f"p{number}", "uid": f"u{number}"}}
            for number in range(1000)
        ]
        put(server, a_slice(a_card()), device_class, a_claim("wish"), *many)
        async with running(server, tmp_path):
            await server.until(lambda: server.list("events"), within_s=60)
            started = asyncio.get_running_loop().time()
            await server.until(lambda: len(server.list("events")) >= 11, within_s=60)
            assert asyncio.get_running_loop().time() - started >= 0.9


def a_lease(phase: str, *, device: str = "gpu-1", claim: str = "far", reason: str = "", since: str = "") -> JSON:
    meta = {"name": f"lease-{device}-{phase.lower()}", "uid": f"uid-{device}-{phase}", "resourceVersion": "1"}
    told = {"namespace": "ml", "name": claim, "uid": f"uid-ml-{claim}"}
    spec = {"pool": "lab", "device": device, "key": device, "epoch": "e", "claim": told, "attachedBy": "Controller"}
    status = {"phase": phase, "since": since or "2026-01-01T00:05:55Z", "reason": reason}
    return {"metadata": meta, "spec": spec | {"node": {"name": "n2", "uid": "u2"}}, "status": status}


def told_of(
    *leases: JSON, said: notices.Known | None = None, at: datetime.datetime = NOW
) -> list[tuple[str, str, str]]:
    found = seen(a_claim("far", pods=("pod",)), a_pod(claim="far"), a_claim("other"), a_pod("stranger", claim="other"))
    answers = notices.Answers(notices=list(notices.of_leases([remote.intent(one) for one in leases], found)))
    return [
        (notice.kind, notice.name, f"{notice.reason}: {notice.message}")
        for notice in those_due(found, said or {}, at, answers)
    ]


def test_claim_and_pod_are_told_at_once_that_their_remote_card_is_attached_and_for_which_node() -> None:
    text = "CardAttached: card gpu-1 of pool lab is attached for node n2"
    assert told_of(a_lease("Attached")) == [("ResourceClaim", "far", text), ("Pod", "pod", text)]


def test_of_two_remote_cards_nothing_is_said_before_both_are_attached() -> None:
    assert told_of(a_lease("Attached"), a_lease("Attaching", device="gpu-2")) == []
    (_, _, text), _ = told_of(a_lease("Attached"), a_lease("Attached", device="gpu-2"))
    assert text == "CardAttached: card gpu-1 of pool lab, gpu-2 of pool lab is attached for node n2"


def test_a_card_that_was_attached_long_ago_is_no_news() -> None:
    assert told_of(a_lease("Attached", since="2025-12-31T00:00:00Z")) == []


def test_a_card_that_was_not_attached_is_told_with_the_reason_and_the_next_one_that_is() -> None:
    failed = a_lease("Failed", reason="no such device")
    (_, name, text), _ = told_of(failed)
    assert (name, text) == ("far", "CardNotAttached: card gpu-1 of pool lab was not attached: no such device")
    both = told_of(failed, a_lease("Attached", device="gpu-2"))
    assert [text.partition(":")[0] for _, _, text in both] == ["CardAttached"] * 2 + ["CardNotAttached"] * 2


def test_a_lost_lease_is_told_with_the_reason_and_again_only_after_an_hour() -> None:
    lost = a_lease("Lost", reason="the server ended with signal 9")
    found = seen(a_claim("far", pods=("pod",)), a_pod(claim="far"))
    on_claim, on_pod = notices.of_leases([remote.intent(lost)], found)
    assert "gpu-1 of pool lab is lost: the server ended with signal 9;" in on_pod.message
    said = {**said_of(on_claim), **said_of(on_pod)}
    assert told_of(lost, said=said, at=later(3599)) == []
    assert len(told_of(lost, said=said, at=later(3600))) == 2


def test_leases_that_come_or_go_and_those_of_claims_that_are_gone_are_told_to_nobody() -> None:
    assert told_of(a_lease("Attaching"), a_lease("Releasing", device="gpu-2"), a_lease("Lost", claim="gone")) == []


def test_a_tainted_remote_card_is_told_with_its_pool() -> None:
    taint = {"key": "remote.gpu.elasticgpu.io/unreachable", "effect": "NoSchedule", "timeAdded": THEN}
    passing = taint | {"key": "remote.gpu.elasticgpu.io/releasing"}
    world = (a_far_slice(a_card(taints=[passing, taint])), a_far_claim(pods=("a",)), a_pod("a", node="node2"))
    (notice,) = [notice for notice in due(*world) if notice.reason == "CardTainted"]
    assert notice.message.startswith(
        f"its card {name_of(1)} of pool lab is tainted remote.gpu.elasticgpu.io/unreachable"
    )

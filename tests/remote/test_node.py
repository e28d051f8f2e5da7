"""The node driver of remote cards between an API server, a controller and a pool: its rows of the failure matrix."""

import asyncio
import contextlib
import datetime
import hashlib
import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from api import errors, lease
from api import remote as kinds
from api.protos import pool_v1alpha1_pb2 as wire
from controller import poolapi as controllers
from driver.remote import netns, node, poolapi, relay, relays
from kubeletplugin import contract
from tests.fakes.authority import Authority
from tests.fakes.pool import FakePool
from tests.fakes.remotes import CLAIMS, Cluster, Way, a_cluster


async def _attached(cluster: Cluster, pool: FakePool, *indexes: int, name: str = "a") -> None:
    cluster.claim(name, pool, *indexes)
    await cluster.until(lambda: cluster.condition(name, "attached"))


def _env(cluster: Cluster, name: str = "a") -> dict[str, str]:
    spec = cluster.spec(name)
    assert spec is not None
    return dict(text.split("=", 1) for device in spec["devices"] for text in device["containerEdits"]["env"])


async def test_a_claim_is_confirmed_certified_and_given_back(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            [device] = await driver.prepare(cluster.allocated("a"))
            assert device.requests == ("card-0",)
            assert device.cdi_ids == ("k8s.remote.gpu.elasticgpu.io/claim=a-card-0",)
            assert device.data == {}
            env = _env(cluster)
            assert env["REMOTE_GPU_ENDPOINTS"] == env["ELASTIC_GPU_REMOTE_A_CARD_0"] == "127.0.0.1:40000"
            [held] = pool.live()
            certificate = x509.load_pem_x509_certificate((cluster.credential("a", "card-0") / "tls.crt").read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
                f"urn:elasticgpu:lease:{held.lease_id}:1"
            ]
            assert pool.audiences == {"lab"}
            await driver.unprepare(cluster.ref("a"))
            assert cluster.spec("a") is None
            assert not cluster.credential("a", "card-0").exists()
            assert pool.live() == []
            cluster.deallocate("a")
            await cluster.until(lambda: cluster.phases() == [])


async def test_cards_of_one_request_are_one_cdi_device(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            body = cluster.claim("a", pool, 0, 1)
            for result in body["status"]["allocation"]["devices"]["results"]:
                result["request"] = "cards/any"
            cluster.server.put(f"{CLAIMS}/a", body)
            await cluster.until(lambda: cluster.condition("a", "attached"))
            first, second = await driver.prepare(cluster.allocated("a"))
            assert first.cdi_ids == second.cdi_ids == ("k8s.remote.gpu.elasticgpu.io/claim=a-cards",)
            assert _env(cluster)["REMOTE_GPU_ENDPOINTS"] == "127.0.0.1:40000,127.0.0.1:40000"
            assert {path.name for path in cluster.credential("a", "cards").iterdir()} == {
                f"{name}{end}" for name in ("tls.crt", "tls.key", "tls.pem", "ca.crt") for end in ("", ".1")
            }


async def test_where_nothing_was_attached_before_the_node_attaches_with_one_key_for_all_its_tries(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, conditions=False)
        async with cluster.controller():
            pool.fault("Attach", after=True)
            async with cluster.node() as driver:
                with pytest.raises(errors.Unavailable):
                    await driver.prepare(cluster.allocated("a"))
            async with cluster.node() as driver:  # a crash in between
                [device] = await driver.prepare(cluster.allocated("a"))
                assert device.data["leaseID"] == pool.live()[0].lease_id
                await cluster.until(lambda: cluster.phases() == ["Attached"])
                assert len({call.idempotency_key for verb, call in pool.calls if verb == "Attach"}) == 1
                await driver.unprepare(cluster.ref("a"))
                assert pool.live() == []
                cluster.deallocate("a")
                await cluster.until(lambda: cluster.phases() == [])


async def test_unprepare_gives_back_what_prepare_only_began(tmp_path: Path) -> None:  # KK#131957
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, conditions=False)
        async with cluster.node() as driver:
            pool.fault("Attach", after=True)
            with pytest.raises(errors.Unavailable):
                await driver.prepare(cluster.allocated("a"))
            assert len(pool.live()) == 1
            await driver.unprepare(cluster.ref("a"))
            assert pool.live() == []
            assert await driver.prepared() == ()


async def test_row_11_a_pool_that_is_down_at_prepare_is_asked_again(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            pool.fault("GetLease", code="UNAVAILABLE")
            with pytest.raises(errors.Unavailable):
                await driver.prepare(cluster.allocated("a"))
            assert cluster.spec("a") is None
            await driver.prepare(cluster.allocated("a"))
            assert len(pool.live()) == 1


async def test_row_10_and_13_what_the_status_says_is_not_believed(tmp_path: Path) -> None:
    """Whoever may write a claim's status could name a server of his own there."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            body = cluster.get("a")
            body["status"]["devices"][0]["data"] |= {"endpoint": "10.6.6.6:1"}
            cluster.server.put(f"{CLAIMS}/a", body)
            await driver.prepare(cluster.allocated("a"))
            assert "10.6.6.6" not in json.dumps(cluster.spec("a"))


async def test_row_14_a_pool_that_is_down_keeps_no_pod_from_ending(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            await cluster.until(lambda: cluster.phases() == ["Attached"])
            await pool.stop()
            await driver.unprepare(cluster.ref("a"))
            await cluster.until(lambda: cluster.phases() == ["Releasing"])
            assert await driver.prepared() == ()
            await cluster.until(lambda: {"releasing"} in cluster.taints().values())
            cluster.deallocate("a")
            await pool.start()
            await cluster.until(lambda: cluster.phases() == [], within_s=60)
            assert pool.live() == []


async def test_row_14_a_record_is_not_lost_where_nobody_can_be_told(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            await pool.stop()
            cluster.server.fault(method="PATCH", path="remoteleases", status=403, times=-1)
            with pytest.raises(errors.Unavailable, match="neither pool lab nor the API server can be told"):
                await driver.unprepare(cluster.ref("a"))
            assert [ref.uid for ref in await driver.prepared()] == ["a"]
            cluster.server.heal()
            await driver.unprepare(cluster.ref("a"))
            assert await driver.prepared() == ()


async def test_row_15_and_16_a_repeat_after_a_restart_asks_nobody_and_gives_the_same(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await _attached(cluster, pool, 0)
            async with cluster.node() as driver:
                first = await driver.prepare(cluster.allocated("a"))
            before = cluster.spec("a")
            claim = cluster.allocated("a")
            pool.devices.clear()
            asked = len(pool.calls)
            async with cluster.node() as driver:
                assert [verb for verb, _ in pool.calls[asked:]].count("RenewLeases") == 1  # before anything is served
                asked = len(pool.calls)
                await cluster.server.stop()
                try:
                    assert await driver.prepare(claim) == first
                finally:
                    await cluster.server.start()
                assert {verb for verb, _ in pool.calls[asked:]} <= {
                    "GetPoolInfo",
                    "ListDevices",
                    "ListLeases",
                    "WatchLeases",
                }
                assert cluster.spec("a") == before


async def test_after_a_reboot_a_fresh_credential_is_made(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            for path in cluster.credential("a", "card-0").iterdir():
                path.unlink()
            await driver.prepare(cluster.allocated("a"))
            assert (cluster.credential("a", "card-0") / "tls.pem").exists()


@pytest.mark.parametrize("how", ["LOST", "RELEASED"], ids=["row_12", "row_19"])
async def test_row_12_and_19_a_lease_that_is_over_is_told_and_starts_no_container(tmp_path: Path, how: str) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await _attached(cluster, pool, 0)
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
            pool.change(pool.live()[0].idempotency_key, how, "fenced")
            async with cluster.node() as driver:
                health = driver.health()
                [told] = await anext(health)
                assert told.health is contract.Health.UNHEALTHY
                assert told.message
                await health.aclose()
                assert cluster.spec("a") is None
                with pytest.raises(errors.NotReady, match="the pod has to be made anew"):
                    await driver.prepare(cluster.allocated("a"))


async def test_row_24_a_claim_on_a_second_node_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.add_node("node2")
        cluster.claim("a", pool, 0, conditions=False)
        async with cluster.node() as first:
            await first.prepare(cluster.allocated("a"))
            async with cluster.node("node2") as second:
                with pytest.raises(errors.NotReady, match="is held"):
                    await second.prepare(cluster.allocated("a"))
        [held] = pool.live()
        assert held.consumer.node_name == "node1"


async def test_row_28_a_claim_that_another_pod_of_the_node_uses_is_not_given_back(
    tmp_path: Path,
) -> None:  # KK PR#140212
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        for name, phase in (("one", "Succeeded"), ("two", "Running")):
            pod = {"metadata": {"uid": f"uid-{name}"}, "spec": {"nodeName": "node1"}, "status": {"phase": phase}}
            cluster.server.put(f"/api/v1/namespaces/default/pods/{name}", pod)
        async with cluster.controller(), cluster.node() as driver:
            cluster.claim("a", pool, 0, pods=("one", "two"))
            await cluster.until(lambda: cluster.condition("a", "attached"))
            await driver.prepare(cluster.allocated("a"))
            await driver.unprepare(cluster.ref("a"))
            assert len(pool.live()) == 1
            cluster.deallocate("a")
            await pool.until(lambda: not pool.live())


async def test_a_claim_allocated_anew_to_the_same_card_is_prepared_anew(tmp_path: Path) -> None:
    """Its pod was deleted by force: no Unprepare came in between (KK#120671)."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            cluster.claim("a", pool, 0, at=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=5))
            await cluster.until(lambda: cluster.condition("a", "attached"))
            await driver.prepare(cluster.allocated("a"))
            cluster.deallocate("a")
            await pool.until(lambda: not pool.live())
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            [held] = pool.live()
            assert _env(cluster)["ELASTIC_GPU_REMOTE_A_CARD_0_LEASES"] == held.lease_id


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"config": [{"endpoint": "10.0.0.1:1"}]}, 'unknown field "endpoint"'),
        ({"config": [{"mounts": ["/etc"]}]}, 'unknown field "mounts"'),
        ({"config": [{"env": {"LD_PRELOAD": "x"}}]}, 'unknown field "env"'),
    ],
)
async def test_a_claims_own_config_sets_no_endpoint_no_path_and_no_variable(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    head = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "RemoteConfig"}
    config = [
        {"source": "FromClaim", "opaque": {"driver": "remote.gpu.elasticgpu.io", "parameters": head | parameters}}
        for parameters in change["config"]
    ]
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, config=config)
        async with cluster.node() as driver:
            with pytest.raises(errors.Invalid) as caught:
                await driver.prepare(cluster.allocated("a"))
            assert text in str(caught.value)


@pytest.mark.parametrize(
    ("profile", "modes", "text"),
    [
        ("lupine", ["mtls"], "show no certificate, which the pool asks for; the chart's remote.relay"),
        ("fake", ["network"], "set allowInsecure on the RemotePool"),
        ("unheard", ["mtls"], "client profile 'unheard' is not known here"),
    ],
)
async def test_a_server_that_cannot_be_reached_safely_is_refused(
    tmp_path: Path, profile: str, modes: list[str], text: str
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            [held] = pool.live()
            held.endpoint.client_profile = profile
            held.endpoint.auth_modes[:] = modes
            with pytest.raises(errors.Invalid, match=text):
                await driver.prepare(cluster.allocated("a"))


async def test_another_nodes_token_gets_no_certificate(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            cluster.server.tokens_node = "node2"
            with pytest.raises(errors.Conflict, match="the lease is for node node1"):
                await driver.prepare(cluster.allocated("a"))


async def test_a_pool_with_a_certificate_of_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, a_stranger() as stranger:
        cluster.add_pool(stranger, caBundle=cluster.authority.pem)
        cluster.claim("a", stranger, 0, conditions=False)
        async with cluster.node() as driver:
            with pytest.raises(errors.Unavailable):
                await driver.prepare(cluster.allocated("a"))
        assert stranger.calls == []


def a_stranger() -> FakePool:
    return FakePool(Authority("somebody else"))


async def test_no_secret_is_in_any_object_file_of_cdi_or_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Searched for, not assumed: private keys, tokens, and the bytes of both."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            key = (cluster.credential("a", "card-0") / "tls.key").read_text()
            objects = json.dumps([item for _, item in cluster.server.store.objects.items()])
            records = "".join(
                path.read_text() for path in tmp_path.rglob("*.json") if "keys" not in path.relative_to(tmp_path).parts
            )
            out, err = capfd.readouterr()
            secret_line = key.splitlines()[1]
            for text in (objects, records, out, err, json.dumps(cluster.spec("a"))):
                assert "PRIVATE KEY" not in text
                assert secret_line not in text
                assert ".signature" not in text
            assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


async def test_a_lease_is_renewed_and_its_credential_too(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await _attached(cluster, pool, 0)
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
            before = (cluster.credential("a", "card-0") / "tls.crt").read_bytes()
            async with cluster.node():  # how long the old one is good is not known to a new process
                assert (cluster.credential("a", "card-0") / "tls.crt").read_bytes() != before
            renewals = [call for verb, call in pool.calls if verb == "RenewLeases"]
            assert [ref.lease_id for ref in renewals[-1].leases] == [pool.live()[0].lease_id]


async def _told(driver: node.Node) -> list[tuple[str, contract.Health]]:
    """What the kubelet hears of the cards here."""
    health = driver.health()
    told = await anext(health)
    await health.aclose()
    return [(one.device, one.health) for one in told]


@pytest.mark.parametrize("name", ["a", "b"], ids=["the_same_claim", "another_claim"])
async def test_that_a_lease_was_lost_says_nothing_of_the_next_one_of_the_card(tmp_path: Path, name: str) -> None:
    """The pod was deleted by force, and nobody has given back yet what it had on the node."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        [card, _] = sorted(pool.devices)
        async with cluster.controller():
            cluster.claim("a", pool, 0, at=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=5))
            await cluster.until(lambda: cluster.condition("a", "attached"))
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
            pool.change(pool.live()[0].idempotency_key, "LOST", "the card fell off")
            async with cluster.node() as driver:
                assert await _told(driver) == [(card, contract.Health.UNHEALTHY)]
                cluster.deallocate("a")
                await pool.until(lambda: not pool.live(), within_s=60)
                await _attached(cluster, pool, 0, name=name)
                first = await driver.prepare(cluster.allocated(name))
                assert await _told(driver) == [(card, contract.Health.HEALTHY)]
                assert await driver.prepare(cluster.allocated(name)) == first
                await driver.unprepare(cluster.ref("a"))
                await driver.unprepare(cluster.ref(name))
                assert await _told(driver) == []


async def test_a_lease_that_is_given_back_while_it_is_renewed_is_not_called_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            ended = asyncio.Event()
            pool.fault("RenewLeases", gate=ended)
            renewal = asyncio.create_task(driver.start())
            await pool.until(lambda: pool.count_of("RenewLeases"), within_s=60)
            await driver.unprepare(cluster.ref("a"))
            ended.set()
            await renewal
            assert await _told(driver) == []
            assert not cluster.credential("a", "card-0").exists()
            assert "lease lost" not in capfd.readouterr().out


async def test_what_is_prepared_or_given_back_while_the_records_are_read_is_known_afterwards(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        _, card = sorted(pool.devices)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await _attached(cluster, pool, 1, name="b")
            await driver.prepare(cluster.allocated("a"))
            [record] = tmp_path.rglob("claims/a.json")
            last = record.with_name("z.json")
            os.mkfifo(last)
            reading = asyncio.create_task(driver.prepared())
            pipe = await asyncio.to_thread(last.open, "wb")  # when it is read, the others were
            await driver.unprepare(cluster.ref("a"))
            await driver.prepare(cluster.allocated("b"))
            pipe.close()
            assert [ref.uid for ref in await reading] == ["b"]
            assert await _told(driver) == [(card, contract.Health.HEALTHY)]


async def test_what_another_process_prepared_and_this_one_gave_back_while_it_read_does_not_come_back(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver, cluster.node() as other:
            await _attached(cluster, pool, 0)
            await other.prepare(cluster.allocated("a"))
            [record] = tmp_path.rglob("claims/a.json")
            last = record.with_name("z.json")
            os.mkfifo(last)
            reading = asyncio.create_task(driver.prepared())
            pipe = await asyncio.to_thread(last.open, "wb")  # when it is read, the other was
            await driver.unprepare(cluster.ref("a"))
            pipe.close()
            assert await reading == ()
            assert await _told(driver) == []


async def test_a_lost_lease_whose_file_cannot_be_removed_costs_no_other_its_renewal(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        first, second = sorted(pool.devices)
        async with cluster.controller():
            await _attached(cluster, pool, 0)
            await _attached(cluster, pool, 1, name="b")
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
                await driver.prepare(cluster.allocated("b"))
            [lost] = [one.idempotency_key for one in pool.live() if one.consumer.claim_uid == "a"]
            pool.change(lost, "LOST", "the card fell off")
            [file] = (tmp_path / "cdi").glob("*_a.json")
            file.unlink()
            file.mkdir()
            before = (cluster.credential("b", "card-1") / "tls.crt").read_bytes()
            async with cluster.node() as driver:
                assert await _told(driver) == [(first, contract.Health.UNHEALTHY), (second, contract.Health.HEALTHY)]
                assert (cluster.credential("b", "card-1") / "tls.crt").read_bytes() != before
            file.rmdir()


async def test_row_25_a_pool_that_cannot_be_reached_ends_no_session(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller():
            await _attached(cluster, pool, 0)
            async with cluster.node() as driver:
                await driver.prepare(cluster.allocated("a"))
            pool.fault("RenewLeases", code="UNAVAILABLE", times=-1)
            async with cluster.node() as driver:
                assert pool.count_of("RenewLeases")
                health = driver.health()
                [told] = await anext(health)
                await health.aclose()
                assert told.health is contract.Health.HEALTHY
                assert cluster.spec("a") is not None
            assert cluster.phases() == ["Attached"]


async def test_row_26_a_node_without_the_api_server_keeps_its_session_until_it_is_fenced(tmp_path: Path) -> None:
    """The replacement on another node has another lease; the node hears of its end when it is back."""
    async with (
        a_cluster(tmp_path) as cluster,
        FakePool(cluster.authority) as pool,
        Way(cluster.server.port).there() as way,
    ):
        cluster.add_pool(pool)
        cluster.add_node("node2")
        (tmp_path / "cut").mkdir()
        text = cluster.server.kubeconfig(tmp_path / "cut").read_text()
        own = tmp_path / "cut" / "kubeconfig"
        own.write_text(text.replace(str(cluster.server.port), str(way.port)))
        async with cluster.controller():
            async with cluster.node(kubeconfig=own) as driver:
                await _attached(cluster, pool, 0)
                await driver.prepare(cluster.allocated("a"))
                way.cut()
                cluster.add_node("node1", ready=False)
                cluster.claim("b", pool, 1, node="node2")
                await cluster.until(lambda: cluster.condition("b", "attached"))
                assert len(pool.live()) == 2
                health = driver.health()
                [told] = await anext(health)
                await health.aclose()
                assert (told.health, cluster.spec("a") is None) == (contract.Health.HEALTHY, False)
                taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
                cluster.add_node("node1", ready=False, taints=[taint])
                await pool.until(lambda: [one.consumer.claim_uid for one in pool.live()] == ["b"], within_s=60)
            async with cluster.node() as driver:
                health = driver.health()
                [told] = await anext(health)
                await health.aclose()
                assert (told.health, cluster.spec("a")) == (contract.Health.UNHEALTHY, None)
            cluster.deallocate("a")
            cluster.balanced(pool)


async def test_row_32_a_pool_whose_clock_is_an_hour_behind_gives_credentials_that_are_good(tmp_path: Path) -> None:
    """They look expired here: for how long they are good the pool says in seconds."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority, lives_s=-1800) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node() as driver:
            await _attached(cluster, pool, 0)
            await driver.prepare(cluster.allocated("a"))
            before = (cluster.credential("a", "card-0") / "tls.crt").read_bytes()
            shown = x509.load_pem_x509_certificate(before).not_valid_after_utc
            assert shown < datetime.datetime.now(datetime.UTC)
            await driver.prepare(cluster.allocated("a"))
            assert (cluster.credential("a", "card-0") / "tls.crt").read_bytes() == before
            health = driver.health()
            [told] = await anext(health)
            await health.aclose()
            assert told.health is contract.Health.HEALTHY
        cluster.balanced(pool)


async def test_an_attach_that_is_under_way_is_waited_for(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, conditions=False)
        pool.attaching = True
        async with cluster.node() as driver:
            preparing = asyncio.create_task(driver.prepare(cluster.allocated("a")))
            await pool.until(lambda: pool.count_of("GetLease"))
            pool.change(pool.live()[0].idempotency_key, "ATTACHED")
            assert len(await preparing) == 1
        assert [one.state for one in pool.live()] == [wire.ATTACHED]


async def test_a_refused_attach_says_why_and_the_same_key_is_tried_again(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, conditions=False)
        pool.fault("Attach", kind=lease.Kind.WITHHELD)
        async with cluster.node() as driver:
            with pytest.raises(errors.NotReady, match="cannot be attached"):
                await driver.prepare(cluster.allocated("a"))
            await driver.prepare(cluster.allocated("a"))
        assert len({call.idempotency_key for verb, call in pool.calls if verb == "Attach"}) == 1


async def test_one_card_that_cannot_be_had_costs_the_claim_no_other(tmp_path: Path) -> None:
    """The key of one is used up: the other's lease goes with its key, or nobody could ever ask for that card again."""
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        cluster.claim("a", pool, 0, 1, conditions=False)
        async with cluster.node() as driver:
            pool.fault("Attach", kind=lease.Kind.ENDED)
            with pytest.raises(errors.NotReady, match="cannot be attached"):
                await driver.prepare(cluster.allocated("a"))
            assert pool.live() == []
            assert len(await driver.prepare(cluster.allocated("a"))) == len(pool.live()) == 2


async def test_a_connection_that_is_replaced_fails_its_calls_and_cancels_nobody(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        spec = kinds.PoolSpec(endpoint=pool.endpoint, ca_bundle=pool.authority.pem)
        theirs = controllers.PoolAPI("lab", spec, cluster.credentials, "c", 1)
        ours = poolapi.PoolAPI("lab", spec, "c", _a_token)
        pool.fault("GetPoolInfo", hang=True)
        pool.fault("GetLease", hang=True)
        changes = theirs.changes(0)
        calls = [asyncio.ensure_future(one) for one in (anext(changes), theirs.info(), ours.lease("key"))]
        await pool.until(lambda: all(map(pool.count_of, ("WatchLeases", "GetPoolInfo", "GetLease"))))
        await theirs.close()
        await ours.close()
        for call in calls:
            with pytest.raises(errors.Unavailable, match="made anew"):
                await call
        with pytest.raises(errors.Unavailable, match="made anew"):  # one that was about to begin
            await ours.lease("key")


async def test_a_call_that_is_cancelled_says_so(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        spec = kinds.PoolSpec(endpoint=pool.endpoint, ca_bundle=pool.authority.pem)
        api = controllers.PoolAPI("lab", spec, cluster.credentials, "c", 1)
        pool.fault("GetPoolInfo", hang=True)
        call = asyncio.create_task(api.info())
        await pool.until(lambda: pool.count_of("GetPoolInfo"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await api.close()


async def _a_token(audience: str) -> str:
    return audience


async def test_before_a_client_without_a_certificate_stands_a_relay_and_no_secret_is_in_its_reach(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path) as cluster, FakePool(cluster.authority) as pool:
        cluster.add_pool(pool)
        async with cluster.controller(), cluster.node(relay=True) as driver:
            await _attached(cluster, pool, 0)
            pool.live()[0].endpoint.client_profile = "ggml-rpc"
            await driver.prepare(cluster.allocated("a"))
            port = relays.port("a", "card-0", 0)
            assert _env(cluster)["GGML_RPC_SERVERS"] == f"127.0.0.1:{port}"
            [device] = (cluster.spec("a") or {})["devices"]
            assert "mounts" not in device["containerEdits"]
            told = relays.decode((cluster.credential("a", "card-0") / "relay.json").read_bytes())
            assert told.pods == ("uid-pod",)
            assert [(link.port, link.front) for link in told.links] == [(port, 40000)]


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a network namespace needs root")
async def test_a_socket_can_be_made_in_another_network_and_used_from_here() -> None:
    inside = await asyncio.create_subprocess_exec(
        *("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert inside.stdout is not None
        assert await inside.stdout.readline() == b"up\n"
        assert netns.apart(inside.pid)
        assert not netns.apart(os.getpid())  # as a process that is not in its pod's network yet
        made = await asyncio.to_thread(netns.listening, inside.pid, 40123)
        with pytest.raises(errors.Conflict, match="port 40123 of the pod"):
            await asyncio.to_thread(netns.listening, inside.pid, 40123)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"from the node: " + await reader.readline())
            writer.close()

        async with await asyncio.start_server(answer, sock=made):
            client = "import socket; s = socket.create_connection(('127.0.0.1', 40123), 60); s.sendall(b'hi\\n'); print(s.recv(99))"
            asked = await asyncio.create_subprocess_exec(
                *("nsenter", f"--net=/proc/{inside.pid}/ns/net", sys.executable, "-c", client),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await asked.communicate()
            assert out == b"b'from the node: hi\\n'\n"
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", 40123)
    finally:
        inside.kill()
        await inside.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a network namespace needs root")
@pytest.mark.parametrize("pinned", [True, False], ids=["the pool's key", "another key"])
async def test_the_relay_goes_on_with_the_leases_certificate_to_the_pools_key_alone(
    tmp_path: Path, pinned: bool
) -> None:
    authority = Authority()
    key, certificate = authority.issued("front", hosts=("127.0.0.1",))
    front_files = tmp_path / "front.pem"
    front_files.write_bytes(certificate + key)
    asked: list[object] = []

    async def front(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("peercert"))
        writer.write(b"computed: " + await reader.readline())
        await writer.drain()
        writer.close()

    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    trust.verify_mode = ssl.CERT_REQUIRED
    trust.load_cert_chain(front_files)
    public = x509.load_pem_x509_certificate(certificate).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    spki = hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).hexdigest()
    folder = tmp_path / "claim" / "card"
    folder.mkdir(parents=True)
    lease_key, lease_certificate = authority.issued("lease", uris=("urn:elasticgpu:lease:l:1",))
    (folder / "tls.pem").write_bytes(lease_certificate + lease_key)
    (folder / "ca.crt").write_text(authority.pem)
    inside = await asyncio.create_subprocess_exec(
        *("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"),
        stdout=asyncio.subprocess.PIPE,
    )
    async with await asyncio.start_server(front, "127.0.0.1", 0, ssl=trust) as server:
        port = server.sockets[0].getsockname()[1]
        link = relays.Link(
            port=40124, host="127.0.0.1", front=port, spki=spki if pinned else "00" * 32, credential="tls.pem"
        )
        assert inside.stdout is not None
        await inside.stdout.readline()
        made = await asyncio.to_thread(netns.listening, inside.pid, 40124)

        async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(errors.Invalid):
                await relay.passed(folder, link, reader, writer)
            writer.close()

        async with await asyncio.start_server(passed, sock=made):
            client = (
                "import socket; s = socket.create_connection(('127.0.0.1', 40124), 60); s.sendall(b'6 x 7\\n'); "
                "s.shutdown(1); print(s.recv(99))"
            )
            done = await asyncio.create_subprocess_exec(
                *("nsenter", f"--net=/proc/{inside.pid}/ns/net", sys.executable, "-c", client),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await done.communicate()
        assert out == (b"b'computed: 6 x 7\\n'\n" if pinned else b"b''\n")
    inside.kill()
    await inside.wait()
    assert len(asked) == 1

"""Rules and dashboard: by promtool, and by a real Prometheus that scrapes a real controller and a node driver's series."""

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
import yaml

from driver import inventory, metrics, records, usage
from tests.fakes import ports
from tests.page.conftest import ADMIN, Stage, until
from tests.page.test_page import a_town
from tests.view.objects import a_card, a_far_slice, a_pool

FILES = Path(__file__).resolve().parents[2] / "charts" / "elastic-gpu" / "files"
RULES = yaml.safe_load((FILES / "rules.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
CARD = "GPU-00000001-0d4e-4f7b-9c31-5e2b7a90d101"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        assert os.environ.get("CI") != "true", f"{name} is missing"
        pytest.skip(f"the rules were NOT TRIED: {name} is missing (apt-get install prometheus)")
    return found


def constant(value: float, minutes: int) -> str:
    return f"{value:g}x{minutes}"


def problem(kind: str) -> dict[str, str]:
    return {
        f'elasticgpu_problems{{kind="{kind}",instance="a"}}': "3",
        f'elasticgpu_problems{{kind="{kind}",instance="b"}}': "3",
    }


USED = 'claim_uid="u",claim_namespace="ml",claim_name="c",card_uuid="g",request="card",instance="n"'
STORIES: dict[str, tuple[dict[str, str], int, dict[str, str]]] = {
    "ElasticGPUControllerAbsent": ({"elasticgpu_controller_leading": "0"}, 6, {}),
    "ElasticGPUWritesFail": (
        {'elasticgpu_controller_writes_total{write="Apply",outcome="refused"}': "0+6x60"}, 50, {"write": "Apply"},
    ),
    "ElasticGPUDriverSilent": (problem("DriverSilent"), 6, {"kind": "DriverSilent"}),
    "ElasticGPUPoolIncomplete": (problem("PoolIncomplete"), 11, {"kind": "PoolIncomplete"}),
    "ElasticGPURemotePoolAway": (problem("PoolUnreachable"), 6, {"kind": "PoolUnreachable"}),
    "ElasticGPULeaseStuck": (problem("LeaseReleasing"), 16, {"kind": "LeaseReleasing"}),
    "ElasticGPUCardTainted": (problem("CardTainted"), 16, {"kind": "CardTainted"}),
    "ElasticGPUOverbooked": (problem("Overbooked"), 2, {"kind": "Overbooked"}),
    "ElasticGPUClaimUnused": (problem("UserGone"), 61, {"kind": "UserGone"}),
    "ElasticGPUCardGone": (problem("CardGone"), 16, {"kind": "CardGone"}),
    "ElasticGPUClassNotReady": ({'elasticgpu_controller_class_ready{class="x",instance="a"}': "0"}, 16, {"class": "x"}),
    "ElasticGPUPodsWait": (problem("PodPending"), 61, {"kind": "PodPending"}),
    "ElasticGPUOutOfCards": (
        {'elasticgpu_class_waiting_claims{class="x"}': "2", 'elasticgpu_node_cards{node="n",state="Free"}': "0"}, 16, {},
    ),
    "ElasticGPUCardsUnread": ({'elasticgpu_cards_read{instance="n"}': "0"}, 6, {"instance": "n"}),
    "ElasticGPUMPSDown": ({'elasticgpu_mps_serving{instance="n"}': "0"}, 11, {"instance": "n"}),
    "ElasticGPUClaimStuck": (
        {'elasticgpu_claim_holds_card{claim_namespace="ml",claim_name="c",device="d",phase="Stuck"}': "1"}, 11,
        {"claim_namespace": "ml", "claim_name": "c", "device": "d"},
    ),
    "ElasticGPUUsedBeyondBooked": (
        {f"elasticgpu_claim_memory_used_bytes{{{USED}}}": "12", f"elasticgpu_claim_memory_bytes{{{USED}}}": "10"}, 6,
        {"claim_uid": "u", "claim_namespace": "ml", "claim_name": "c", "card_uuid": "g", "request": "card"},
    ),
}  # fmt: skip


def test_the_rules_are_well_formed() -> None:
    subprocess.run([program("promtool"), "check", "rules", FILES / "rules.yaml"], check=True, capture_output=True)


def test_every_alert_has_a_story_a_severity_and_says_what_it_is() -> None:
    assert {rule["alert"] for rule in ALERTS} == set(STORIES)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_it_is_time_and_not_before(alert: str, tmp_path: Path) -> None:
    series, minutes, labels = STORIES[alert]
    (rule,) = [rule for rule in ALERTS if rule["alert"] == alert]
    series = {name: value if "x" in value else f"{value}x120" for name, value in series.items()}
    fires = [{"exp_labels": labels | rule["labels"]}]
    early = max(0, int(rule["for"].rstrip("mh")) * (60 if rule["for"].endswith("h") else 1) - 1)
    tests = [
        {"eval_time": f"{early}m", "alertname": alert, "exp_alerts": []},
        {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": fires},
    ]
    assert _tried(tmp_path, series, [{**one, "exp_alerts": _with_texts(one, rule, series)} for one in tests]) == ""


def test_two_replicas_are_not_counted_twice(tmp_path: Path) -> None:
    series = {f'elasticgpu_cards{{model="m",state="Free",instance="{name}"}}': "4x9" for name in "ab"}
    query = {
        "expr": "sum(elasticgpu:cards:by_model_state)",
        "eval_time": "5m",
        "exp_samples": [{"labels": "{}", "value": 4}],
    }
    assert _tried(tmp_path, series, [], [query]) == ""


def test_a_quiet_cluster_raises_nothing(tmp_path: Path) -> None:
    quiet = {
        "elasticgpu_controller_leading": "1x120",
        'elasticgpu_problems{kind="ClaimUnused"}': "0x120",
        'elasticgpu_class_waiting_claims{class="x"}': "0x120",
        'elasticgpu_cards{model="m",state="Free"}': "0x120",
        'elasticgpu_node_cards{node="n",state="Free"}': "0x120",
        f"elasticgpu_claim_memory_used_bytes{{{USED}}}": "9x120",
        f"elasticgpu_claim_memory_bytes{{{USED}}}": "10x120",
    }
    tests = [{"eval_time": "110m", "alertname": alert, "exp_alerts": []} for alert in STORIES]
    assert _tried(tmp_path, quiet, tests) == ""


def _with_texts(test: dict[str, Any], rule: dict[str, Any], series: dict[str, str]) -> list[dict[str, Any]]:
    """promtool compares annotations too: the texts as Prometheus fills them in."""
    value = {"ElasticGPUWritesFail": "0.1", "ElasticGPUOutOfCards": "2", "ElasticGPUUsedBeyondBooked": "120%"}.get(
        rule["alert"], "3" if any("problems" in name for name in series) else "1"
    )
    filled = []
    for alert in test["exp_alerts"]:
        texts = {key: _filled(text, value, alert["exp_labels"]) for key, text in rule["annotations"].items()}
        filled.append(alert | {"exp_annotations": texts})
    return filled


def _filled(text: str, value: str, labels: dict[str, str]) -> str:
    found = text.replace("{{ $value }}", value).replace("{{ $value | humanizePercentage }}", value)
    for label, content in labels.items():
        found = found.replace(f"{{{{ $labels.{label} }}}}", content)
    return found


def _tried(
    folder: Path, series: dict[str, str], alerts: list[dict[str, Any]], queries: list[dict[str, Any]] = ()
) -> str:  # type: ignore[assignment]
    """What promtool complains of; empty where all is as expected."""
    (folder / "rules.yaml").write_text((FILES / "rules.yaml").read_text())
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": alerts, "promql_expr_test": list(queries)}
    (folder / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run(
        [program("promtool"), "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


class Prometheus:
    """A real one that scrapes these ports and evaluates our rules."""

    def __init__(self, folder: Path, controller: int, node: int) -> None:
        shutil.copy(FILES / "rules.yaml", folder)
        (folder / "token").write_text(ADMIN)
        jobs = [
            {
                "job_name": "controller",
                "static_configs": [{"targets": [f"127.0.0.1:{controller}"]}],
                "authorization": {"credentials_file": str(folder / "token")},
            },
            {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{node}"]}]},
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.port = ports.free()
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stderr=subprocess.DEVNULL,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def prometheus(stage: Stage, tmp_path: Path) -> Iterator[Prometheus]:
    program("prometheus")
    a_town(stage)
    stage.put(a_far_slice(a_card(7)), a_pool())
    stage.start(EGPU_REMOTE="true")
    node = prometheus_client.CollectorRegistry()
    node.register(metrics.Holders(lambda: [_record()], SimpleNamespace(use=_use(), verified={})))
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=node)
    found = Prometheus(tmp_path, stage.open_port, server.server_port)
    yield found
    found.stop()
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_panel_and_every_rule_finds_something_in_a_real_scrape(prometheus: Prometheus) -> None:  # HAMi#1891
    board = json.loads((FILES / "dashboard.json").read_text())
    expressions = {target["expr"].replace("$model", ".*") for panel in board["panels"] for target in panel["targets"]}
    until(
        lambda: prometheus.query("elasticgpu:cards:by_model_state") and prometheus.query("elasticgpu_claim_holds_card"),
        60,
    )
    until(lambda: prometheus.query("rate(elasticgpu_controller_writes_total[1m])"), 60)
    until(lambda: prometheus.query("elasticgpu_pool_cards"), 60)
    until(lambda: not [expression for expression in expressions if not prometheus.query(expression)], 60)
    records_ = [rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule]
    until(lambda: not [name for name in records_ if not prometheus.query(name)], 60)


def test_the_dashboard_has_a_place_for_each_panel_and_names_its_source() -> None:
    board = json.loads((FILES / "dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in board["panels"])
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])


def _record() -> records.Record:
    holding = records.Holding(
        request="card", pool="egpu/node1", device=CARD.lower(), card=CARD, minor=0, share_id="s", backend="share", cores=50, memory_mib=8192
    )  # fmt: skip
    return records.Record(
        uid="u", namespace="ml", name="half", phase=records.Phase.PREPARED, boot_id="b", holdings=(holding,), cdi=""
    )  # type: ignore[arg-type]


def _use() -> usage.Usage:
    key = ("u", "card", CARD.lower(), "s")
    use = usage.Use(memory_bytes=2**30, cores=30, processes=1)
    return usage.Usage(
        shares={key: use}, cards={inventory.CardUUID(CARD): usage.CardUse(used_bytes=2**30, unbooked_bytes=0)}
    )

"""Every query of the dashboards, answered by a real Prometheus that reads two exporters of one run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from exporter.runs.contract import RUN_FAMILIES, STATES, STATISTICS
from exporter.runs.signals import SIGNALS
from tests.grafana.conftest import Json
from tests.grafana.queries import dashboard_queries
from tests.real import PrometheusServer, query

pytestmark = pytest.mark.e2e

RUN = 'ppo/强化 "7" it\'s & a+b'
OTHER_RUN = "ppo/other"


def sample(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}"


def exposition(run: str) -> Iterator[str]:
    """Everything that an exporter may serve about one run."""
    run = run.replace('"', '\\"')
    for family in RUN_FAMILIES:
        if family.name not in {"rl_run_state", "rl_run_info"}:
            yield sample(family.name, 3, run=run)
    for state in STATES:
        yield sample("rl_run_state", int(state == "running"), run=run, state=state)
    yield sample("rl_run_info", 1, run=run, framework="verl", source="console")
    for signal in SIGNALS:
        yield sample(f"rl_{signal.name}", 0.5, run=run)
    for statistic in STATISTICS:
        yield sample(statistic.metric, 0.25, run=run, **statistic.labels)


def gpus() -> Iterator[str]:
    for gpu in "01":
        yield sample("DCGM_FI_DEV_GPU_UTIL", 40, gpu=gpu)
        yield sample("DCGM_FI_DEV_FB_USED", 1024, gpu=gpu)


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = "\n".join([*exposition(RUN), *exposition(OTHER_RUN), *gpus()])
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(f"{text}\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Say nothing."""


def settings(port: int) -> Json:
    targets = [{"targets": [f"127.0.0.1:{port}"]}]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": name, "static_configs": targets} for name in ("runs", "twin")],
        "rule_files": ["rules.yml"],
    }


def rules() -> Json:
    alerts = [
        {
            "alert": name,
            "expr": f'max by (run) (rl_reward{{run!="{OTHER_RUN}"}}) > 0',
            "labels": {"severity": severity},
        }
        for name, severity in (("KLExplosion", "critical"), ("KLHigh", "warning"))
    ]
    return {"groups": [{"name": "rl", "rules": alerts}]}


@pytest.fixture(scope="module", params=["2.42", "3.13"])
def prometheus_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as exporter:
        threading.Thread(target=exporter.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings(exporter.server_port)))
        (folder / "rules.yml").write_text(yaml.safe_dump(rules()))
        with PrometheusServer(request.param, folder) as server:
            wait_for_two_exporters_and_two_alerts(server.url)
            yield server.url
        exporter.shutdown()


def wait_for_two_exporters_and_two_alerts(url: str) -> None:
    deadline = time.monotonic() + 60
    while len(query(url, "up == 1")) < 2 or len(query(url, 'ALERTS{alertstate="firing"}')) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_every_query_about_a_run_gives_that_run_and_once(
    default: dict[str, Json], prometheus_url: str
) -> None:
    for asked in dashboard_queries(default["stepwatch-training"], RUN):
        found = query(prometheus_url, asked.expr)
        if "ALERTS" in asked.expr:
            assert {each["metric"]["run"] for each in found} == {RUN}, asked
        else:
            assert [each["metric"].get("run", RUN) for each in found] == [RUN], asked


def test_every_query_about_all_runs_gives_each_of_them_once(
    default: dict[str, Json], prometheus_url: str
) -> None:
    for asked in dashboard_queries(default["stepwatch-runs"]):
        found = query(prometheus_url, asked.expr)
        assert found, asked
        if asked.panel in {"All runs", "States"}:
            assert sorted(each["metric"]["run"] for each in found) == sorted([RUN, OTHER_RUN]), asked


def test_figures_say_what_their_panels_promise(default: dict[str, Json], prometheus_url: str) -> None:
    shown = {
        asked.panel: float(query(prometheus_url, asked.expr)[0]["value"][1])
        for dashboard in default.values()
        for asked in dashboard_queries(dashboard, RUN)
        if asked.panel in {"Running", "Critical", "Warnings", "Run exporter", "Targets down", "State"}
    }

    assert shown == {
        "Running": 2,
        "Critical": 1,
        "Warnings": 1,
        "Run exporter": 1,
        "Targets down": 0,
        "State": 5,
    }


def test_gpu_panels_are_filled_by_either_exporter(default: dict[str, Json], prometheus_url: str) -> None:
    shown = {
        asked.expr.partition("(")[0]: float(query(prometheus_url, asked.expr)[0]["value"][1])
        for asked in dashboard_queries(default["stepwatch-training"], RUN)
        if asked.panel == "GPU utilisation" and "gpu_utilization_ratio" in asked.expr
    }

    assert shown == {"max": 0.4, "avg": 0.4, "min": 0.4}

"""Every query of both dashboards finds data once trainers' logs have been replayed through the stack."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stepwatch.alerts.table import TABLE
from stepwatch.operate.orders import mark
from stepwatch.rules.alerting import in_force
from tests.e2e.stack import PAIRS, Stack
from tests.e2e.test_delivery import PAGES
from tests.e2e.writer import writing
from tests.grafana.queries import DashboardQuery, dashboard_queries, metrics_of
from tests.own_logs import HEALTHY, RESUMED, SICK, TRUNCATED
from tests.real.waiting import let_pass
from tests.runs.lines import append, verl_json

pytestmark = pytest.mark.e2e

LOGS = {"sick": SICK, "critic": HEALTHY, "total": RESUMED, "truncated": TRUNCATED}
RUNS = (*LOGS, "scoped", "workers")
OF_SERVERS = {"Rollout latency"}
"""Panels about rollout servers, of which there are none here: `tests/grafana/test_servers.py` fills them."""
GPUS = b"""gpu_utilization_ratio{gpu="0"} 0.9
gpu_memory_used_bytes{gpu="0"} 6e10
gpu_memory_total_bytes{gpu="0"} 8e10
"""


class GpuPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(GPUS)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's name)
        """Say nothing."""


@contextmanager
def gpu_exporter():
    with ThreadingHTTPServer(("127.0.0.1", 0), GpuPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def write_scoped(path):
    """What only other trainers than verl log."""
    for step in range(60):
        values = {"reward_mean": 0.01 * step, "reward_std": 0.2, "zero_std_ratio": 0.1, "kl_engine": 0.001}
        values["kl_teacher"] = 0.5
        record = {"timestamp": time.time(), "scope": "rollout", "step": step, **values}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def write_workers(path):
    """What verl's workers measure on GPUs, and many validations."""
    for step in range(60):
        values = {"critic/score/mean": 0.3 + 0.005 * step, "actor/grad_norm": 1 + step % 7 / 10}
        values |= {"perf/mfu/actor": 0.4, "perf/max_memory_allocated_gb": 60.0}
        values |= {"perf/max_memory_reserved_gb": 70.0}
        values |= {f"val-core/set-{number}/reward/mean@1": 0.2 + step % 5 / 50 for number in range(8)}
        append(path, verl_json(step, values))


@pytest.fixture(scope="module", params=PAIRS, ids=lambda versions: "prometheus-" + versions[0])
def stack(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as opened:
        target = opened.enter_context(gpu_exporter())
        gpus = {"job": "gpus", "role": "gpu", "targets": [target], "interval": "5s"}
        stack = opened.enter_context(Stack(folder, request.param, scrape=[gpus]))
        for run, log in LOGS.items():
            opened.enter_context(writing(log, stack.runs / f"{run}.log", "--rate", "10", "--stay"))
        write_scoped(stack.runs / "scoped.jsonl")
        write_workers(stack.runs / "workers.jsonl")
        stack.wait_sent("sick", PAGES)
        for run in RUNS:
            stack.wait_step(run, 55)
        stack.wait_until(lambda: stack.query("gpu_utilization_ratio"))
        mark(folder / "config.yaml", "scoped", "new data", print)
        let_pass(2, stack.evaluations)
        yield stack


def _needs(query: DashboardQuery, measured: Mapping[str, str]) -> set[str]:
    """What must be there for a query to have data: of a limit, what its alert measures."""
    values = {value for limit, value in measured.items() if limit in query.limit}
    return values or metrics_of(query.limit) - {"rl_step"}


@pytest.mark.parametrize("name", ["runs", "training"])
def test_every_query_returns_data_for_a_replayed_run(stack, name):
    dashboard = json.loads((stack.state.rendered / f"grafana/generated/dashboards/{name}.json").read_text())
    asked = {run: dashboard_queries(dashboard, run) for run in RUNS}

    measured = {
        alert.series(each).removesuffix("}"): alert.promql(each.value)
        for alert in in_force(stack.config, TABLE)
        for each in alert.conditions
    }
    details = {each["title"] for row in dashboard["panels"] for each in row.get("panels", ())}
    empty = [
        each.panel + ": " + each.expr
        for number, each in enumerate(asked["sick"])
        if not any(stack.query(asked[run][number].limit) for run in RUNS)
        and each.panel not in OF_SERVERS
        and not (each.panel == "Step by phase" and "topk" in each.expr)  # its other phases are shown
        and (each.panel not in details or any(map(stack.query, _needs(each, measured))))
        and not (
            each.panel == "Last step" and asked["sick"][number - 1].panel == "Last step"
        )  # past its limit
    ]

    phases = [each for each in asked["sick"] if each.panel == "Step by phase"]
    assert len([each for each in phases if stack.query(each.limit)]) == (8 if phases else 0)
    assert asked["sick"]
    assert empty == []


def test_the_dashboards_show_the_sick_run_as_sick_and_the_healthy_one_as_healthy(stack):
    firing = stack.query('count by (run) (ALERTS{alertstate="firing",run=~".+"})')

    assert {sample["metric"]["run"] for sample in firing} >= {"sick"}
    assert "critic" not in {sample["metric"]["run"] for sample in firing}

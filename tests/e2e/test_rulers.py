"""The rules in a central ruler: Thanos Ruler and vmalert, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.stack import Stack
from tests.e2e.writer import writing
from tests.own_logs import SICK
from tests.real import PrometheusServer, Server, free_port, query
from tests.real.tools import unavailable
from tests.real.waiting import counted, eventually
from tests.rules.rendered import CHECKOUT

pytestmark = [pytest.mark.e2e, pytest.mark.world]


def _program(name: str) -> str:
    return shutil.which(name) or unavailable(f"{name} is not on PATH")


def test_vmalert_takes_all_rules_and_messages() -> None:
    rules = CHECKOUT / "prometheus/generated/rules/*.yml"
    words = ("-dryRun", "-rule.validateTemplates", "-rule.validateExpressions", f"-rule={rules}")
    done = subprocess.run([_program("vmalert"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "finished reading 11 files" in done.stderr


def test_a_sick_run_fires_in_thanos_ruler_and_not_where_rules_are_none(tmp_path: Path) -> None:
    thanos = _program("thanos")
    (tmp_path / "central").mkdir()
    (tmp_path / "central/prometheus.yml").write_text("{}")
    central = PrometheusServer("3.13", tmp_path / "central", options=("--web.enable-remote-write-receiver",))
    writes = {"url": f"{central.url}/api/v1/write"}
    settings = {"external_labels": {"cluster": "night"}, "remote_write": [writes], "rules": "none"}
    with central, Stack(tmp_path / "stack", ("3.13", "0.31"), **settings) as stack:
        port = free_port()
        ruler = Server(
            [
                thanos,
                "rule",
                f"--data-dir={tmp_path}/ruler",
                f"--rule-file={stack.state.rendered}/prometheus/generated/rules/*.yml",
                f"--query={central.url}",
                f"--http-address=127.0.0.1:{port}",
                f"--grpc-address=127.0.0.1:{free_port()}",
                "--remote-write.config",
                yaml.safe_dump({"remote_write": [{**writes, "queue_config": {"batch_send_deadline": "1s"}}]}),
            ],
            f"http://127.0.0.1:{port}/-/ready",
        )
        with ruler, writing(SICK, stack.runs / "ppo.log", "--rate", "10", "--stay"):
            evaluations = counted(
                "evaluations",
                f"http://127.0.0.1:{port}/metrics",
                "prometheus_rule_group_iterations_total",
            )
            fires = 'ALERTS{alertname="RewardCollapse",alertstate="firing",cluster="night",run="ppo"}'
            eventually(lambda: query(central.url, fires), evaluations, pause=0.5)
            # What rules record about rules is there as well.
            eventually(lambda: query(central.url, 'rl_firing{name="RewardCollapse",run="ppo"}'), evaluations)
        assert stack.query("ALERTS") == []

"""The rules in a central ruler: Thanos Ruler, and vmalert with VictoriaMetrics, where they are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config import load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import render_all
from tests.cluster.hub import QUICK
from tests.e2e.stack import Stack
from tests.e2e.writer import writing
from tests.native.installation import made
from tests.own_logs import SICK
from tests.real import AlertmanagerServer, PrometheusServer, Server, WebhookSink, free_port, query
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
    assert "finished reading 12 files" in done.stderr


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


def test_victoria_metrics_is_the_hub_of_an_agent_and_vmalert_fires_once(tmp_path: Path) -> None:
    """With a login, as a shared one has; the rules, routes and messages are those of a hub."""
    store, ruler, agent = _program("victoria-metrics"), _program("vmalert"), made(tmp_path, "newest")
    (tmp_path / "password").write_text("of-the-agents")
    (tmp_path / "password").chmod(0o600)
    port, at = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    words = ("-search.latencyOffset=1s", f"-httpListenAddr=127.0.0.1:{port}", "-httpAuth.username=rl")
    login = f"-httpAuth.password=file://{tmp_path}/password"
    hub = {"url": f"{url}/api/v1/write", "username": "rl", "password_file": str(tmp_path / "password")}
    agent.configure(f"role: agent\nnode: n7\nhub: {json.dumps(hub)}\ndiscovery: {{ray: null}}\n{QUICK}")
    with (
        WebhookSink() as sink,
        Server([store, f"-storageDataPath={tmp_path}/data", *words, login], f"{url}/health"),
        ExitStack() as opened,
    ):
        receivers = [{"name": "sink", "webhook": {"url": sink.url}}]
        (tmp_path / "hub.yaml").write_text(f"role: hub\nreceivers: {json.dumps(receivers)}\n{QUICK}")
        for path, content in render_all(load(tmp_path / "hub.yaml"), CHECKOUT, OnThisMachine).items():
            (tmp_path / "hub" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "hub" / path).write_bytes(content)
        alertmanager = AlertmanagerServer("0.31", tmp_path / "hub/alertmanager/generated")
        opened.enter_context(alertmanager)
        systems = [
            word
            for system in ("datasource", "remoteWrite", "remoteRead")
            for word in (
                f"-{system}.url={url}",
                f"-{system}.basicAuth.username=rl",
                f"-{system}.basicAuth.passwordFile={tmp_path}/password",
            )
        ]
        judge = [
            ruler,
            f"-rule={tmp_path}/hub/prometheus/generated/rules/*.yml",
            *systems,
            "-rule.evalDelay=1s",
        ]
        judge += [
            f"-notifier.url={alertmanager.url}",
            f"-httpListenAddr=127.0.0.1:{at}",
            "-remoteWrite.flushInterval=1s",
        ]
        opened.enter_context(Server(judge, f"http://127.0.0.1:{at}/health"))
        opened.callback(agent.run, "down")
        done = agent.up()
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"The hub {url} accepts its samples (last " in done.stdout
        with writing(SICK, agent.folder / "my runs/ppo/sick.log", "--rate", "5", "--stay"):
            sink.wait_for(lambda message: "firing KLExplosion ppo/sick" in _said(message.alerts))
            time.sleep(60)
    every = [each for message in sink.received for each in _said(message.alerts)]
    assert every.count("firing KLExplosion ppo/sick") == 1, every


def _said(alerts: list[dict[str, Any]]) -> list[str]:
    return [
        f"{each['status']} {each['labels'].get('alertname')} {each['labels'].get('run', '')}"
        for each in alerts
    ]

"""The run exporter reports that Prometheus cannot reach Alertmanager; without settings it checks nothing."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.real import AlertmanagerServer, PrometheusServer, Server, WebhookSink, free_port

pytestmark = pytest.mark.e2e


class Network:
    """A way to a server of this machine, until it is cut: then it ends connections as a firewall does."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self._server, self._inner = port, socket.create_server(("127.0.0.1", 0))
        self.port: int = self._inner.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            outer, _ = self._inner.accept()
            if self.cut:
                outer.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server))
            for one, other in ((outer, server), (server, outer)):
                Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while (data := one.recv(1 << 16)) and not self.cut:
                other.sendall(data)
        for end in (one, other):
            end.close()


@pytest.fixture(name="exporter")
def _exporter(tmp_path: Path) -> list[str]:
    """The command of a run exporter on a free port, without settings."""
    return [sys.executable, "-m", "exporter.runs", f"--path={tmp_path}", f"--port={free_port()}"]


def test_a_cut_between_prometheus_and_alertmanager_is_reported(tmp_path: Path, exporter: list[str]) -> None:
    page = f"http://127.0.0.1:{exporter[-1].partition('=')[2]}"
    with WebhookSink() as sink:
        receivers = [{"name": "ops", "webhook_configs": [{"url": sink.url}]}]
        route = {"receiver": "ops", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "5s"}
        (tmp_path / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": receivers}))
        alertmanager = AlertmanagerServer("0.25", tmp_path)
        network = Network(alertmanager.port)
        rule = {"alert": "Firing", "expr": "vector(1)"}
        (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": [rule]}]}))
        target = {"static_configs": [{"targets": [f"127.0.0.1:{network.port}"]}]}
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{tmp_path}/rules.yml"],
            "alerting": {"alertmanagers": [target]},
            "scrape_configs": [
                {"job_name": "own", "static_configs": [{"targets": [page.removeprefix("http://")]}]}
            ],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
        prometheus = PrometheusServer("3.13", tmp_path, options=("--rules.alert.resend-delay=5s",))
        exporter += [f"--prometheus-url={prometheus.url}", f"--alertmanager-url={alertmanager.url}"]
        exporter += ["--alerting={}", "--alerting-disks", str(tmp_path)]
        with alertmanager, prometheus, Server(exporter, f"{page}/-/healthy", cwd=CHECKOUT):
            sink.wait_for(lambda message: message.payload["commonLabels"]["alertname"] == "Firing")
            assert json.loads(http_client.read(f"{page}/api/v1/findings") or "")["findings"] == []
            network.cut = True
            broken = sink.wait_for(lambda message: "AlertingBroken" in str(message.payload["commonLabels"]))
            assert broken.alerts[0]["labels"]["fault"] == "notifications_dropped"
            assert "Prometheus cannot reach Alertmanager" in (http_client.read(page) or "")
            assert "stepwatch_alerting_finding{" in (http_client.read(f"{page}/metrics") or "")


def test_an_exporter_without_settings_checks_nothing(exporter: list[str]) -> None:
    page = f"http://127.0.0.1:{exporter[-1].partition('=')[2]}"
    with Server(exporter, f"{page}/-/healthy", cwd=CHECKOUT):
        assert "stepwatch_alerting" not in (http_client.read(f"{page}/metrics") or "")
        assert http_client.read(f"{page}/api/v1/findings") is None

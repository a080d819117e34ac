"""The helpers themselves: the programs talk to each other as the end-to-end tests need it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.real import AlertmanagerServer, PrometheusServer, WebhookSink, free_port, query
from tests.real.waiting import Work, eventually, let_pass

pytestmark = pytest.mark.e2e

RULES = """
groups:
  - name: test
    rules:
      - {alert: Always, expr: vector(1), labels: {run: a}}
"""


def prometheus_config(folder: Path, alertmanager_port: int) -> Path:
    (folder / "rules.yml").write_text(RULES)
    (folder / "prometheus.yml").write_text(f"""
global: {{evaluation_interval: 1s, scrape_interval: 1s}}
rule_files: [rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{alertmanager_port}"]}}]}}]}}
""")
    return folder


def alertmanager_config(folder: Path, sink_url: str) -> Path:
    (folder / "alertmanager.yml").write_text(f"""
route: {{receiver: sink, group_wait: 0s}}
receivers: [{{name: sink, webhook_configs: [{{url: "{sink_url}"}}]}}]
""")
    return folder


@pytest.mark.parametrize(("prometheus", "alertmanager"), [("2.42", "0.25"), ("3.13", "0.31")])
def test_an_alert_goes_from_prometheus_to_the_sink_and_its_state_outlives_a_kill(
    tmp_path: Path, prometheus: str, alertmanager: str
) -> None:
    port = free_port()
    with (
        WebhookSink() as sink,
        AlertmanagerServer(alertmanager, alertmanager_config(tmp_path, sink.url), port=port),
        # Prometheus 2.42 knows no Alertmanager in its first 5 s, and sends again after a minute.
        PrometheusServer(
            prometheus, prometheus_config(tmp_path, port), options=("--rules.alert.resend-delay=1s",)
        ) as server,
    ):
        message = sink.wait_for(lambda message: message.alerts[0]["labels"]["run"] == "a")
        eventually(lambda: query(server.url, 'ALERTS{alertstate="firing"}') != [])
        before = time.time()
        server.kill()
        server.start()
        kept = query(server.url, f"count_over_time(ALERTS[1m] @ {before})")

    assert message.alerts[0]["status"] == "firing"
    assert [series["metric"]["alertname"] for series in kept] == ["Always"]


def test_what_must_not_happen_is_given_so_much_work_and_no_less() -> None:
    counts = iter([10, 11, 13, 14])
    let_pass(4, Work("evaluations", lambda: next(counts)))
    assert list(counts) == []

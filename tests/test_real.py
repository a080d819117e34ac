"""The helpers themselves: the programs talk to each other as the end-to-end tests need it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import AlertmanagerServer, PrometheusServer, WebhookSink, free_port, query, waiting
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


def test_a_message_that_does_not_come_is_reported_with_those_that_did() -> None:
    with WebhookSink() as sink, pytest.raises(AssertionError, match=r"no such message in 0\.1 s; came: \[\]"):
        sink.wait_for(lambda _: True, timeout=0.1)


def test_a_wait_ends_when_the_work_is_done_and_says_what_was_seen_last() -> None:
    done = iter(range(100))
    with pytest.raises(AssertionError, match="not within 3 looks: state starting"):
        eventually(
            lambda: False, Work("looks", lambda: next(done)), 3, pause=0, seen=lambda: "state starting"
        )
    assert next(done) == 5, "asked no more often than it takes"


def test_a_wait_outlasts_a_program_that_is_slow_gone_or_starts_again() -> None:
    counts: Iterator[float | None] = iter([50, 51, None, None, 0, 1, 2, 2, 2, 3])
    looks: list[None] = []

    def count() -> float:
        if (found := next(counts)) is None:
            raise ConnectionRefusedError
        return found

    eventually(lambda: looks.append(None) or len(looks) == 9, Work("scrapes", count), 4, pause=0)
    assert len(looks) == 9


def test_a_hang_ends_a_wait_whatever_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HANG_SECONDS", 0.05)
    with pytest.raises(AssertionError, match=r"not within 0 s \(0 scrapes\): nothing more is known"):
        eventually(lambda: False, Work("scrapes", lambda: 7))
    with pytest.raises(AssertionError, match="no work counted"):
        eventually(lambda: False)


def test_what_must_not_happen_is_given_so_much_work_and_no_less() -> None:
    counts = iter([10, 11, 13, 14])
    let_pass(4, Work("evaluations", lambda: next(counts)))
    assert list(counts) == []

"""A dead man's switch outside gets pings for as long as Prometheus and Alertmanager work, and no longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.real import WebhookSink, alertmanager, eventually

pytestmark = pytest.mark.e2e

QUIET_SECONDS = 8
"""Without a ping for that long, a checker that is pinged each second notifies."""


@pytest.mark.parametrize("versions", MAINLY_NEWEST)
def test_a_dead_prometheus_or_alertmanager_stops_the_pings(
    tmp_path: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = alertmanager(versions[1])
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(found.server))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(found.tool))
    with WebhookSink() as checker:
        secret = tmp_path / "checker-url"
        secret.write_text(checker.url)
        old = versions[1] == "0.25"  # which reads no URL from a file
        deadman = {"url": checker.url} if old else {"url_file": str(secret)}
        settings = {"deadman": {**deadman, "every": "1s"}, "intervals": {"stack_rules": "1s"}}
        stack = Stack(tmp_path / "stack", versions, **settings)
        stack.prometheus.command = [
            word.replace("--rules.alert.resend-delay=45s", "--rules.alert.resend-delay=1s")
            for word in stack.prometheus.command
        ]

        def stopped() -> bool:
            return time.time() - checker.received[-1].at > QUIET_SECONDS

        with stack:
            for part in (stack.prometheus, stack.alertmanager):
                begun = time.time()
                eventually(lambda: any(ping.at > begun for ping in list(checker.received)))  # noqa: B023
                assert not stopped()
                part.kill()
                eventually(stopped, pause=0.2)
                part.start()
        assert {ping.payload["status"] for ping in checker.received} == {"firing"}
        assert {each["labels"]["alertname"] for ping in checker.received for each in ping.alerts} == {
            "Watchdog"
        }
        assert not stack.sink.received

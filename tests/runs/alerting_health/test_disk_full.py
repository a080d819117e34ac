"""The disk with a real stack's state is full: nothing but the fault is reported, and all goes on after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.e2e.writer import writing
from tests.native.installation import Installation, made
from tests.own_logs import HEALTHY, SICK
from tests.real import Received, WebhookSink
from tests.real.disk import fill, small_disk
from tests.real.waiting import eventually, in_time

pytestmark = pytest.mark.e2e

PAGES = {"RewardCollapse", "KLExplosion"}

LOOKBACK = "20s"
"""After which Prometheus takes for missing what it could not store; 5 minutes by default."""


@pytest.fixture(name="sink")
def _sink() -> Iterator[WebhookSink]:
    with WebhookSink() as sink:
        yield sink


@pytest.fixture(
    name="stack",
    params=[pytest.param(("oldest", "ext4"), marks=pytest.mark.world), ("newest", "tmpfs")],
    ids="-".join,
)
def _stack(request: pytest.FixtureRequest, tmp_path: Path, sink: WebhookSink) -> Iterator[Installation]:
    """A stack whose whole state lies on a small file system."""
    versions, kind = request.param
    stack = made(tmp_path, versions)
    stack.environment["STEPWATCH_PROMETHEUS"] = str(_quick(stack, tmp_path / "prometheus"))
    stack.configure(
        f"receivers: [{{name: sink, webhook: {{url: '{sink.url}'}}}}]\n"
        "discovery: {ray: null}\n"
        "alerts: {ExporterDown: {for: 10s}}\n"
    )
    with small_disk(stack.state, kind):
        try:
            yield stack
        finally:
            stack.run("down")


def _quick(stack: Installation, script: Path) -> Path:
    """A Prometheus that takes for missing what is 20 s old."""
    real, more = stack.environment["STEPWATCH_PROMETHEUS"], f"--query.lookback-delta={LOOKBACK}"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] || set -- "$@" {more}\nexec {real} "$@"\n')
    script.chmod(0o755)
    return script


def tells_of(status: str, *names: str) -> Callable[[Received], bool]:
    return lambda message: any(
        alert["labels"]["alertname"] in names and alert["status"] == status for alert in message.alerts
    )


def test_a_full_disk_is_reported_within_a_minute_and_a_sick_run_as_soon_as_there_is_room(
    stack: Installation, sink: WebhookSink
) -> None:
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr
    runs = stack.folder / "my runs"
    with writing(HEALTHY, runs / "healthy.log", "--rate", "1"), writing(SICK, runs / "sick.log", "--stay"):
        ballast, full = stack.state / "ballast", time.time()
        fill(ballast)
        reported = sink.wait_for(tells_of("firing", "AlertingBroken"))
        (alert,) = reported.alerts
        assert in_time(reported.at - full, 60)
        assert (alert["labels"]["fault"], alert["labels"]["name"]) == ("disk_full", str(stack.state))
        assert "no run is monitored" in alert["annotations"]["description"]
        assert alert["annotations"]["runbook_url"].endswith("#alertingbroken")
        _is_shown(stack)
        _takes_the_exporter_for_missing(stack)

        freed = time.time()
        ballast.unlink()
        page = sink.wait_for(tells_of("firing", *PAGES))
        assert in_time(page.at - freed, 60)
        sink.wait_for(tells_of("resolved", "AlertingBroken"))
        eventually(lambda: stack.run("status").returncode == 0, pause=1)
        assert not [name for name, run in _subjects(sink) if run != "sick" and name != "AlertingBroken"]
    print(f"reported after {reported.at - full:.0f} s, paged {page.at - freed:.0f} s after there was room")


def _subjects(sink: WebhookSink) -> set[tuple[str, str]]:
    """Name and run of all that came."""
    alerts = (alert["labels"] for message in list(sink.received) for alert in message.alerts)
    return {(labels["alertname"], labels.get("run", "")) for labels in alerts}


def _is_shown(stack: Installation) -> None:
    status = stack.run("status")
    assert status.returncode == 1
    assert "State disk is full" in status.stdout
    eventually(lambda: "State disk is full" in (http_client.read(stack.url("exporter")) or ""), pause=0.5)
    metrics = http_client.read(f"{stack.url('exporter')}/metrics") or ""
    assert f'stepwatch_alerting_finding{{fault="disk_full",name="{stack.state}"}} 1' in metrics


def _takes_the_exporter_for_missing(stack: Installation) -> None:
    """Wait until Prometheus sends the wrong alert, and that is inhibited; an old one is dead."""

    def inhibited() -> bool:
        alerts = json.loads(http_client.read(f"{stack.url('alertmanager')}/api/v2/alerts") or "[]")
        wrong = [alert for alert in alerts if alert["labels"]["alertname"] == "ExporterDown"]
        return bool(wrong) and all(alert["status"]["inhibitedBy"] for alert in wrong)

    eventually(lambda: inhibited() or http_client.read(f"{stack.url('prometheus')}/-/ready") is None, pause=1)

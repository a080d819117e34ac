"""A real Alertmanager with the rendered configuration: what is posted to it, and what a webhook gets."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from tests.alertmanager.conftest import Render
from tests.real import AlertmanagerServer, Received, WebhookSink

pytestmark = pytest.mark.e2e

QUICK = (
    "notify: {critical: {group_wait: 1s, group_interval: 1s}, warning: {group_wait: 1s, group_interval: 1s}}"
)
# Longer than a group waits and is looked at again: what has not come by then does not come.
QUIET_SECONDS = 3

Labels = dict[str, str]


def alert(name: str, run: str = "", severity: str = "critical", topic: str = "reward", **more: str) -> Labels:
    labels = {"alertname": name, "run": run, "severity": severity, "topic": topic, **more}
    return {label: value for label, value in labels.items() if value}


def post(server: AlertmanagerServer, *alerts: Labels, over: bool = False) -> None:
    """Tell Alertmanager, as Prometheus does, of alerts that fire or (over) have ended."""
    now = datetime.now(timezone.utc)
    # One that began longer ago than its group waits would be sent at once, without waiting for company.
    times = {"endsAt": now} if over else {"startsAt": now, "endsAt": now + timedelta(minutes=10)}
    body = [{"labels": labels, **{key: at.isoformat() for key, at in times.items()}} for labels in alerts]
    request = urllib.request.Request(
        f"{server.url}/api/v2/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=10).close()


def told(sink: WebhookSink, status: str = "firing") -> set[tuple[str, str]]:
    """Name and run (or job) of every alert that came."""
    return {
        (each["labels"]["alertname"], each["labels"].get("run") or each["labels"].get("job", ""))
        for message in sink.received
        for each in message.alerts
        if each["status"] == status
    }


class Route:
    """An Alertmanager on a folder of rendered configuration, and the webhook of its receiver."""

    def __init__(self, server: AlertmanagerServer, folder: Path, sink: WebhookSink) -> None:
        self.server = server
        self.folder = folder
        self.sink = sink

    def settle(self, *alerts: Labels, over: bool = False) -> set[tuple[str, str]]:
        """Post alerts; returns everything that was told once nothing more comes."""
        post(self.server, *alerts, over=over)
        last = time.time()
        while time.time() - last < QUIET_SECONDS:
            time.sleep(0.1)
            last = max([last, *(message.at for message in self.sink.received)])
        return told(self.sink)

    def silence_links(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Name and run of each message, and the link that its text offers."""
        data = self.server.folder / "message.json"
        for message in self.sink.received:
            data.write_text(json.dumps(message.payload))
            labels = message.payload["commonLabels"]
            yield (
                (labels["alertname"], labels["run"]),
                self.amtool(
                    *(
                        "template",
                        "render",
                        f"--template.glob={self.folder}/*.tmpl",
                        f"--template.data={data}",
                    ),
                    '--template.text={{ template "stepwatch.silence_url" .CommonLabels }}',
                ),
            )

    def asked_for(self, link: str) -> list[tuple[str, str]]:
        """Name and run of the alerts that the matchers in a silence link take."""
        matchers = re.findall(r'\w+="(?:\\.|[^"\\])*"', unquote(link.partition("?filter=")[2]))
        found = self.amtool(
            f"--alertmanager.url={self.server.url}", "-o", "json", "alert", "query", *matchers
        )
        return [(each["labels"]["alertname"], each["labels"]["run"]) for each in json.loads(found)]

    def amtool(self, *words: str) -> str:
        done = subprocess.run([self.server.tool.tool, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def route(version: str, render: Render) -> Iterator[Route]:
    with WebhookSink() as sink:
        folder = render(f"receivers: [{{name: oncall, webhook: {{url: '{sink.url}'}}}}]\n{QUICK}")
        with AlertmanagerServer(version, folder) as server:
            yield Route(server, folder, sink)


def test_what_is_told_and_what_a_graver_alert_keeps_quiet(route: Route) -> None:
    """Every case has runs of its own, so that one look at the webhook judges all of them."""
    told_about = route.settle(
        # How a run ended is over whatever else it did, Stalled included.
        *(alert("RunFailed", "failed", topic="progress"), alert("KLExplosion", "failed", topic="kl")),
        *(alert("RunVanished", "vanished", topic="progress"), alert("RewardDrop", "vanished", "warning")),
        *(
            alert("RunStopped", "stopped", "warning", "progress"),
            alert("Stalled", "stopped", topic="progress"),
        ),
        # A stall is over the signals, but not over what may have caused it.
        *(alert("Stalled", "stalled", topic="progress"), alert("RewardCollapse", "stalled")),
        *(alert("NonFinite", "stalled", topic="gradient"), alert("XidError", "stalled", "warning", "gpu")),
        # Critical is over warning, of the same topic.
        *(alert("RewardCollapse", "sick"), alert("RewardDrop", "sick", "warning")),
        alert("KLHigh", "sick", "warning", "kl"),
        # Runs do not speak for each other.
        *(alert("RunFailed", "one", topic="progress"), alert("KLExplosion", "other", topic="kl")),
        *(alert("KLExplosion", "one of two", topic="kl"), alert("KLHigh", "two of two", "warning", "kl")),
        # Alerts about no run, or of no topic, do not either.
        *(alert("NotificationFailures", topic="stack"), alert("ConfigReloadFailed", "", "warning", "stack")),
        *(alert("OwnPage", "own", topic=""), alert("OwnWarning", "own", "warning", "")),
        # An exporter that is down is one fault, not two.
        *(
            alert("ExporterDown", topic="stack", job="runs"),
            alert("TargetDown", "", "warning", "stack", job="runs"),
        ),
        alert("TargetDown", "", "warning", "stack", job="gpu"),
        # Shown in the pages only.
        *(alert("Watchdog", topic="stack"), alert("RunFinished", "done", "info", "progress")),
    )

    assert told_about == {
        ("RunFailed", "failed"),
        ("RunVanished", "vanished"),
        ("RunStopped", "stopped"),
        ("Stalled", "stalled"),
        ("XidError", "stalled"),
        ("RewardCollapse", "sick"),
        ("KLHigh", "sick"),
        ("RunFailed", "one"),
        ("KLExplosion", "other"),
        ("KLExplosion", "one of two"),
        ("KLHigh", "two of two"),
        ("NotificationFailures", ""),
        ("ConfigReloadFailed", ""),
        ("OwnPage", "own"),
        ("OwnWarning", "own"),
        ("ExporterDown", "runs"),
        ("TargetDown", "gpu"),
    }


def test_alerts_of_one_name_run_and_severity_come_as_one_message_and_others_apart(route: Route) -> None:
    route.settle(
        alert("KLExplosion", "a", topic="kl"),
        alert("KLExplosion", "b", topic="kl"),
        alert("RewardDrop", "a", "warning"),
        *(
            alert("TargetDown", "", "warning", "stack", job="gpu", instance=f"n{number}:1")
            for number in range(3)
        ),
    )

    sizes = {
        tuple(message.payload["groupLabels"].values()): len(message.alerts) for message in route.sink.received
    }
    assert sizes == {
        ("KLExplosion", "a", "critical"): 1,
        ("KLExplosion", "b", "critical"): 1,
        ("RewardDrop", "a", "warning"): 1,
        ("TargetDown", "warning"): 3,
    }
    assert len(route.sink.received) == len(sizes), "nothing is said twice"


def test_what_was_kept_quiet_is_told_when_the_graver_alert_is_over(route: Route) -> None:
    over, under = alert("RunFailed", "a", topic="progress"), alert("KLExplosion", "a", topic="kl")
    assert route.settle(over, under) == {("RunFailed", "a")}

    assert route.settle(over, over=True) == {("RunFailed", "a"), ("KLExplosion", "a")}
    assert told(route.sink, "resolved") == {("RunFailed", "a")}


def test_the_end_of_an_alert_is_told_once_and_only_to_receivers_that_want_it(
    version: str, render: Render
) -> None:
    ended = alert("KLExplosion", "a", topic="kl")
    with WebhookSink() as sink, WebhookSink() as without_ends:
        folder = render(
            f"receivers:\n- {{name: oncall, webhook: {{url: '{sink.url}'}}}}\n"
            f"- {{name: log, webhook: {{url: '{without_ends.url}'}}, send_resolved: false}}\n{QUICK}"
        )
        with AlertmanagerServer(version, folder) as server:
            route = Route(server, folder, sink)
            route.settle(ended)
            route.settle(ended, over=True)

    assert [message.payload["status"] for message in sink.received] == ["firing", "resolved"]
    assert [message.payload["status"] for message in without_ends.received] == ["firing"]


def test_messages_wait_for_company_as_long_as_their_severity_says(version: str, render: Render) -> None:
    timing = "notify: {critical: {group_wait: 1s}, warning: {group_wait: 4s}}"
    with WebhookSink() as sink:
        folder = render(f"receivers: [{{name: oncall, webhook: {{url: '{sink.url}'}}}}]\n{timing}")
        with AlertmanagerServer(version, folder) as server:
            posted = time.time()
            post(server, alert("KLExplosion", "a", topic="kl"), alert("RewardDrop", "a", "warning"))
            for name, least in (("KLExplosion", 1), ("RewardDrop", 4)):
                assert sink.wait_for(partial(is_about, name), 30).at - posted >= least


def is_about(name: str, message: Received) -> bool:
    return message.alerts[0]["labels"]["alertname"] == name


def test_a_silence_link_names_one_alert_of_one_run_whatever_the_run_is_called(route: Route) -> None:
    runs = ["强化学习/实验 七", "a b+c&d", 'with "quotes"', "it's, {so}", "back\\slash"]
    sent = [(name, run) for name in ("KLExplosion", "RewardCollapse") for run in runs]
    route.settle(*(alert(name, run) for name, run in sent))

    assert {named: route.asked_for(link) for named, link in route.silence_links()} == {
        named: [named] for named in sent
    }


class Guarded(BaseHTTPRequestHandler):
    """Notes who asks, and sends everybody elsewhere."""

    def do_POST(self) -> None:
        self.server.seen.append(("POST", self.headers.get("Authorization")))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(301)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.seen.append(("GET", self.headers.get("Authorization")))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Say nothing."""


class Guard(ThreadingHTTPServer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Guarded)


def test_a_receiver_is_shown_the_credentials_and_a_redirect_is_a_failure_that_is_counted(
    version: str, render: Render
) -> None:
    """A followed redirect would turn the POST into a GET: lost, and yet counted as delivered."""
    with Guard() as guard:
        Thread(target=guard.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://127.0.0.1:{guard.server_port}/"
        folder = render(
            f"receivers: [{{name: oncall, webhook: {{url: '{url}', credentials_file: token}}}}]\n{QUICK}"
        )
        with AlertmanagerServer(version, folder) as server:
            post(server, alert("KLExplosion", "a"))
            time.sleep(QUIET_SECONDS)
            metrics = urllib.request.urlopen(f"{server.url}/metrics", timeout=10).read().decode()
            log = server.log.read_text()
        guard.shutdown()

    assert set(guard.seen) == {("POST", "Bearer s3cret-token")}
    failed = re.findall(r'notifications_failed_total\{.*integration="webhook".*\} ([1-9])', metrics)
    assert failed
    assert "s3cret" not in log

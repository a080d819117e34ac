"""A real Alertmanager with the rendered configuration: what is posted to it, and what a webhook gets."""

from __future__ import annotations

import json
import os
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
from tests.real import AlertmanagerServer, Received, WebhookSink, eventually
from tests.real.answering import Answering
from tests.real.mailbox import Certificate, Mailbox
from tests.real.tools import unavailable

pytestmark = pytest.mark.e2e

QUICK = (
    "notify: {critical: {group_wait: 1s, group_interval: 1s}, warning: {group_wait: 1s, group_interval: 1s}}"
)
# Longer than a group waits and is looked at again: what has not come by then does not come.
QUIET_SECONDS = 3

Labels = dict[str, str]

HOST = {"instance": "a:9411"}


def alert(name: str, run: str = "", severity: str = "critical", topic: str = "reward", **more: str) -> Labels:
    labels = {"alertname": name, "run": run, "severity": severity, "topic": topic, **more}
    return {label: value for label, value in labels.items() if value}


def disk_low(disk: str, severity: str, instance: str, mountpoint: str) -> Labels:
    """The alert about a disk, which is told from others by a label that no rule of inhibition asks for."""
    return alert("DiskLow", "", severity, "stack", job=disk, instance=instance, mountpoint=mountpoint)


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
    """Name and run (or job and instance) of every alert that came."""
    return {
        (each["labels"]["alertname"], subject(each["labels"]))
        for message in sink.received
        for each in message.alerts
        if each["status"] == status
    }


def subject(labels: Labels) -> str:
    return labels.get("run") or " ".join(labels[name] for name in ("job", "instance") if name in labels)


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
            alert("KLExplosion", "vanished", topic="kl"),
            alert("GPUIdleWhileRunning", "vanished", topic="gpu"),
        ),
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
        # Runs do not speak for each other, on one host either.
        *(
            alert("RunFailed", "one", topic="progress", **HOST),
            alert("KLExplosion", "other", topic="kl", **HOST),
        ),
        alert("KLExplosion", "one of two", topic="kl", **HOST),
        alert("KLHigh", "two of two", "warning", "kl", **HOST),
        # Alerts about no run, or of no topic, do not either, on one host or on two.
        *(alert("NotificationFailures", topic="stack"), alert("ConfigReloadFailed", "", "warning", "stack")),
        *(alert("OwnPage", "own", topic=""), alert("OwnWarning", "own", "warning", "")),
        *(alert("GPULost", topic="gpu", **HOST), alert("GPUHot", "", "warning", "gpu", **HOST)),
        alert("GPUMemoryHigh", "", "warning", "gpu", instance="b:9411"),
        # An exporter that is down is one fault, not two; on another host it is.
        *(
            alert("ExporterDown", topic="stack", job="runs", **HOST),
            alert("TargetDown", "", "warning", "stack", job="runs", **HOST),
        ),
        alert("TargetDown", "", "warning", "stack", job="gpu", **HOST),
        alert("TargetDown", "", "warning", "stack", job="runs", instance="b:9411"),
        # A disk without room is one fault, on each machine, and mutes neither runs nor other machines.
        disk_low("full", "critical", "n1:1", "/data"),
        disk_low("the same", "warning", "n1:1", "/data"),
        disk_low("another", "warning", "n1:1", "/home"),
        disk_low("another machine's", "warning", "n2:1", "/data"),
        alert("HostMemory", "", "warning", "stack", job="of the machine", instance="n1:1"),
        alert("GradNormHigh", "on that machine", "warning", "gradient"),
        # Shown in the pages only, and no reason to say less of anything else.
        *(alert("Watchdog", topic="stack"), alert("RunFinished", "done", "info", "progress")),
        *(alert("RunStopped", "demoted", "info", "progress"), alert("RewardCollapse", "demoted")),
        *(
            alert("Stalled", "waits", "info", "progress"),
            alert("LengthRunaway", "waits", "warning", "length"),
        ),
        *(alert("KLExplosion", "told", "info", "kl"), alert("KLHigh", "told", "warning", "kl")),
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
        ("GPULost", "a:9411"),
        ("GPUHot", "a:9411"),
        ("GPUMemoryHigh", "b:9411"),
        ("ExporterDown", "runs a:9411"),
        ("TargetDown", "gpu a:9411"),
        ("TargetDown", "runs b:9411"),
        ("RewardCollapse", "demoted"),
        ("LengthRunaway", "waits"),
        ("KLHigh", "told"),
        ("DiskLow", "full n1:1"),
        ("DiskLow", "another n1:1"),
        ("DiskLow", "another machine's n2:1"),
        ("HostMemory", "of the machine n1:1"),
        ("GradNormHigh", "on that machine"),
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


def test_info_is_told_to_nobody_when_it_fires_alone_when_others_do_and_when_they_are_over(
    version: str, render: Render
) -> None:
    with WebhookSink() as sink, WebhookSink() as grave:
        folder = render(
            f"receivers:\n- {{name: all, webhook: {{url: '{sink.url}'}}}}\n"
            f"- {{name: grave, webhook: {{url: '{grave.url}'}}, severities: [critical]}}\n{QUICK}"
        )
        with AlertmanagerServer(version, folder) as server:
            route = Route(server, folder, sink)
            shown = [alert(name, "a", "info", "kl") for name in ("RunFinished", "KLHigh", "OwnNote")]
            page, warning = alert("KLExplosion", "a", topic="kl"), alert("RewardDrop", "a", "warning")
            vanished = alert("RunVanished", "a", topic="progress")
            assert route.settle(*shown) == set()
            assert route.settle(page, warning, *shown) == {("KLExplosion", "a"), ("RewardDrop", "a")}
            route.settle(vanished, *shown)
            route.settle(vanished, page, warning, over=True)
            route.settle(*shown, over=True)

    assert told(sink) == {("KLExplosion", "a"), ("RewardDrop", "a"), ("RunVanished", "a")}
    assert told(grave) == {("KLExplosion", "a"), ("RunVanished", "a")}
    for status in ("firing", "resolved"):
        assert {name for name, _ in told(sink, status)} <= {"KLExplosion", "RewardDrop", "RunVanished"}


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


LOGIN = ("stepwatch", "s3cret-token")


def test_a_mail_comes_encrypted_by_login_when_it_fires_and_when_it_is_over(
    version: str, render: Render, tmp_path: Path
) -> None:
    certificate = Certificate.made(tmp_path)
    with Mailbox(login=LOGIN, certificate=certificate) as mailbox:
        folder = render(
            "receivers: [{name: team, mail: {to: [a@b.example], from: c@d.example,"
            f" smarthost: '{mailbox.address}', username: {LOGIN[0]}, password_file: password}}}}]\n{QUICK}"
        )
        server = AlertmanagerServer(version, folder)
        server.env = {**os.environ, "SSL_CERT_FILE": str(certificate.path)}
        with server:
            sick = [alert("KLExplosion", "强化学习/ü", topic="kl")]
            two = [alert("TargetDown", "", "warning", "stack", instance=f"n{n}:1") for n in range(2)]
            for over, count in ((False, 2), (True, 4)):
                post(server, *sick, *two, over=over)
                eventually(lambda count=count: len(mailbox.received) == count, timeout=30)
            log = server.log.read_text()

    mails = {str(mailed.message["Subject"]): mailed for mailed in mailbox.received}
    assert set(mails) == {
        "KLExplosion  强化学习/ü",
        "TargetDown: 2 firing",
        "Resolved: KLExplosion  强化学习/ü",
        "Resolved: TargetDown: 0 firing, 2 resolved",
    }
    for mailed in mails.values():
        assert (mailed.encrypted, mailed.login) == (True, LOGIN[0])
        assert {part.get_content_type() for part in mailed.message.iter_parts()} == {
            "text/plain",
            "text/html",
        }
        assert "Dashboard at that time: http" in mailed.part("plain")
        assert ">Curves at that time</a>" in mailed.part("html")
    assert "- instance=n1:1:" in mails["TargetDown: 2 firing"].part("plain")
    assert ">instance=n1:1:" in mails["TargetDown: 2 firing"].part("html")
    assert LOGIN[1] not in log


def test_slack_is_told_in_colour_and_with_links_when_it_fires_and_when_it_is_over(
    version: str, render: Render
) -> None:
    with Answering() as slack:
        folder = render(
            f"receivers: [{{name: chat, slack: {{url_file: slack-url}}}}]\n{QUICK}", slack=slack.url
        )
        with AlertmanagerServer(version, folder) as server:
            for over, count in ((False, 1), (True, 2)):
                post(server, alert("KLHigh", "<!channel>", "warning", topic="kl"), over=over)
                eventually(lambda count=count: len(slack.received) == count, timeout=30)
            log = server.log.read_text()

    [firing], [over] = (message["attachments"] for message in slack.received)
    assert (firing["title"], firing["color"]) == ("KLHigh  &lt;!channel&gt;", "#ecb22e")
    assert (over["title"], over["color"]) == ("Resolved: KLHigh  &lt;!channel&gt;", "#2eb67d")
    for attachment in (firing, over):
        assert attachment["fallback"] == attachment["title"]
        assert attachment["title_link"] in attachment["text"]
    assert "|Silence for 2 h>" in firing["text"]
    assert "level=error" not in log.lower()


def test_at_port_465_encryption_is_there_from_the_first_byte(
    version: str, render: Render, tmp_path: Path
) -> None:
    """Alertmanager would ask for it once more there, in vain, if it were told to."""
    if os.geteuid() != 0:
        unavailable("port 465 is for root")
    certificate = Certificate.made(tmp_path, host="127.46.5.1")
    with Mailbox(certificate=certificate, port=465) as mailbox:
        folder = render(
            "receivers: [{name: team, mail: {to: [a@b.example], from: c@d.example,"
            f" smarthost: '{mailbox.address}'}}}}]\n{QUICK}"
        )
        server = AlertmanagerServer(version, folder)
        server.env = {**os.environ, "SSL_CERT_FILE": str(certificate.path)}
        with server:
            post(server, alert("KLExplosion", "a"))
            eventually(lambda: bool(mailbox.received), timeout=30)

    assert mailbox.received[0].encrypted

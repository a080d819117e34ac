"""Each type of receiver delivers, on a real Alertmanager with the rendered configuration."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.alertmanager.conftest import Render
from tests.alertmanager.route import QUICK, QUIET_SECONDS, Route, alert, post
from tests.real import AlertmanagerServer, WebhookSink, eventually
from tests.real.mailbox import Certificate, Mailbox
from tests.real.tools import unavailable

pytestmark = pytest.mark.e2e


def test_the_end_of_an_alert_is_reported_once_and_only_to_receivers_that_want_it(
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
                eventually(lambda count=count: len(mailbox.received) == count)
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
        assert ">Dashboard at that time</a>" in mailed.part("html")
    assert "- instance=n1:1:" in mails["TargetDown: 2 firing"].part("plain")
    assert ">instance=n1:1:" in mails["TargetDown: 2 firing"].part("html")
    assert LOGIN[1] not in log


def test_at_port_465_encryption_is_there_from_the_first_byte(
    version: str, render: Render, tmp_path: Path
) -> None:
    """Alertmanager would ask for it once more there, in vain, if it were a target."""
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
            eventually(lambda: bool(mailbox.received))

    assert mailbox.received[0].encrypted

"""A running Alertmanager with receivers of every kind, some of which do not work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.operate.test_alert import send_test
from stepwatch.render.generator import generate
from stepwatch.system.files import from_now_on
from tests.real import AlertmanagerServer, free_port
from tests.real.answering import Answering
from tests.real.mailbox import Certificate, Mailbox

LOGIN = ("ops", "right-password")


@dataclass
class Bench:
    """The running Alertmanager, its configuration, and what stands behind its receivers."""

    folder: Path
    server: AlertmanagerServer
    good: Answering
    chat: Answering
    mailbox: Mailbox

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def test(self, receiver: str, patience: float = 60) -> tuple[int, list[str]]:
        """Run the command; returns what it ends with and what it says."""
        said: list[str] = []
        return send_test(self.config, receiver, self, said.append, patience=patience), said

    def deployment(self, config: Config) -> Deployment:
        return OnThisMachine(config)

    def journal(self, _: str) -> Callable[[], str]:
        return from_now_on(self.server.log)

    def log(self, part: str) -> str:
        return f"the log of {part}"


FILES = {
    "token": "s3cret-token\n",
    "right": LOGIN[1],
    "wrong": "wrong-password",
    "chat-url": "{chat}/services/T0/s3cretpath\n",
    "gone-url": "{gone}/services/T0/s3cretpath\n",
    "broken-url": "{broken}/services/T0/s3cretpath\n",
    "lost-url": "{chat}/services/T0/s3cretpath\n",
}

RECEIVERS = """
- {{name: ops, webhook: {{url: "{good}", credentials_file: token}}}}
- {{name: broken, webhook: {{url: "{broken}"}}}}
- {{name: gone, webhook: {{url: "{gone}"}}}}
- {{name: no one there, webhook: {{url: "http://127.0.0.1:{unused}"}}}}
- {{name: slow, webhook: {{url: "{slow}"}}}}
- {{name: mail, mail: {{{addresses}, smarthost: "{mailbox}", username: ops, password_file: right}}}}
- {{name: plain mail, mail: {{{addresses}, smarthost: "{plain}", tls: false}}}}
- {{name: unencrypted, mail: {{{addresses}, smarthost: "{plain}"}}}}
- {{name: wrong password, mail: {{{addresses}, smarthost: "{mailbox}", username: ops, password_file: wrong}}}}
- {{name: no mail server, mail: {{{addresses}, smarthost: "127.0.0.1:{unused}"}}}}
- {{name: chat, slack: {{url_file: chat-url, channel: "#training"}}}}
- {{name: chat is gone, slack: {{url_file: gone-url}}}}
- {{name: chat is broken, slack: {{url_file: broken-url}}}}
- {{name: lost, slack: {{url_file: lost-url}}}}
"""

ADDRESSES = "to: [on@call.example, second@call.example], from: stepwatch@call.example"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.made(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["0.25", "0.31", "0.31, counting by receiver"], scope="module")
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: Certificate
) -> Iterator[Bench]:
    version, _, by_receiver = request.param.partition(", ")
    folder, port = tmp_path_factory.mktemp("bench"), free_port()
    options = ("--enable-feature=receiver-name-in-metrics",) if by_receiver else ()
    with (
        Answering() as good,
        Answering() as chat,
        Answering(500, "it is broken") as broken,
        Answering(404, "nothing at {path}, says it") as gone,
        Answering(delay=4) as slow,
        Mailbox(login=LOGIN, certificate=certificate) as mailbox,
        Mailbox() as plain,
    ):
        places = {
            "good": good.url,
            "chat": chat.url,
            "broken": broken.url,
            "gone": gone.url,
            "slow": slow.url,
        }
        places |= {"mailbox": mailbox.address, "plain": plain.address, "addresses": ADDRESSES}
        for name, content in FILES.items():
            (folder / name).write_text(content.format(**places))
        text = RECEIVERS.format(**places, unused=free_port())
        (folder / "config.yaml").write_text(f"ports: {{alertmanager: {port}}}\nreceivers:{text}")
        generate(folder / "config.yaml", folder, place=OnThisMachine)
        server = AlertmanagerServer(version, folder / "alertmanager/generated", port=port, options=options)
        server.env = {**os.environ, "SSL_CERT_FILE": str(certificate.path)}
        with server:
            yield Bench(folder, server, good, chat, mailbox)

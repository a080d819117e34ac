"""A mail server that keeps what it is sent."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from types import TracebackType
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from typing_extensions import Self

from tests.real.server import free_port


@dataclass(frozen=True)
class Mailed:
    """One mail, and how it came."""

    message: EmailMessage
    encrypted: bool
    login: str | None

    def part(self, kind: str) -> str:
        """Its text, ``plain`` or ``html``."""
        body = self.message.get_body((kind,))
        assert body is not None, f"no {kind} text in {self.message}"
        content: str = body.get_content()
        return content


class Mailbox:
    """Listens on 127.0.0.1 while the ``with`` block runs; ``received`` is in order of arrival.

    Args:
        login: User name and password that it asks for, over an encrypted connection only.
        certificate: Of the server; with one it offers encryption.
        port: If not any free one. At 465 it speaks TLS from the first byte, else after STARTTLS.
    """

    def __init__(
        self,
        *,
        login: tuple[str, str] | None = None,
        certificate: Certificate | None = None,
        port: int | None = None,
    ) -> None:
        self.received: list[Mailed] = []
        port = port or free_port()
        host = certificate.host if certificate else "127.0.0.1"
        self.address = f"{host}:{port}"
        encryption = "ssl_context" if port == 465 else "tls_context"
        self._login, self._encrypted = login, encryption == "ssl_context"
        self._controller = Controller(
            self,
            hostname=host,
            port=port,
            **({encryption: certificate.context()} if certificate else {}),
            authenticator=self._authenticate if login else None,
            auth_required=login is not None,
            auth_require_tls=True,
            # It asks for a LOGIN in words of its own, which no client has to know.
            auth_exclude_mechanism=["LOGIN"],
        )

    async def handle_DATA(self, _: Any, session: Any, envelope: Any) -> str:  # noqa: N802  its name
        message = BytesParser(policy=default).parsebytes(envelope.content)
        login = session.auth_data.login.decode() if session.authenticated else None
        self.received.append(Mailed(message, session.ssl is not None or self._encrypted, login))
        return "250 OK"

    def _authenticate(self, *about: Any) -> AuthResult:
        data: LoginPassword = about[-1]
        given = (data.login.decode(), data.password.decode())
        return AuthResult(success=given == self._login, handled=False, auth_data=data)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()


@dataclass(frozen=True)
class Certificate:
    """A certificate for an address that vouches for itself, and its key."""

    path: Path
    key: Path
    host: str

    @classmethod
    def made(cls, folder: Path, host: str = "127.0.0.1", *, days: int = 2) -> Certificate:
        """A fresh one, for so many days; of a hub CertificateExpires fires with less than 14 left."""
        made = cls(folder / "certificate.pem", folder / "key.pem", host)
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-nodes", "-days", str(days), "-subj", "/CN=test", "-addext", f"subjectAltName=IP:{host}"),
                *("-keyout", made.key, "-out", made.path),
            ],
            check=True,
            capture_output=True,
        )
        return made

    def expire(self) -> None:
        """Put another one in its place, for the same key, which was valid for a day of 2020."""
        folder = self.path.parent / "authority"
        folder.mkdir()
        (folder / "index").touch()
        (folder / "settings").write_text(
            f"[ca]\ndefault_ca = a\n[a]\ndatabase = {folder}/index\nnew_certs_dir = {folder}\npolicy = p\n"
            "rand_serial = yes\ndefault_md = sha256\n[p]\ncommonName = supplied\n"
            f"[e]\nsubjectAltName = IP:{self.host}\n"
        )
        request = (
            "openssl",
            "req",
            "-new",
            "-key",
            self.key,
            "-subj",
            "/CN=test",
            "-out",
            folder / "request",
        )
        sign = ("openssl", "ca", "-batch", "-notext", "-selfsign", "-config", folder / "settings")
        sign += ("-extensions", "e", "-keyfile", self.key, "-in", folder / "request", "-out", self.path)
        day = ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
        for command in (request, (*sign, *day)):
            subprocess.run(command, check=True, capture_output=True)

    def context(self) -> ssl.SSLContext:
        """What a server needs to speak for it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context

"""What services take from Stepwatch's own Alertmanager: whether it is that, and what its times mean."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from exporter.http.message import Answer, text

USER = "stepwatch"


class WebhookError(Exception):
    """Raised when a request is refused; holds the answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def require(headers: Mapping[str, str], file: Path | None) -> None:
    """Check that a request comes from Stepwatch's own Alertmanager.

    Raises:
        WebhookError: It does not show the password in this file, or there is none.
    """
    try:
        password = file.read_text(encoding="ascii").strip() if file else ""
    except (OSError, ValueError):
        password = ""
    if not password:
        words = "No password is set. Fix: name its file with --password-file.\n"
        raise WebhookError(text("503 Service Unavailable", words))
    expected = f"Basic {b64encode(f'{USER}:{password}'.encode()).decode()}"
    if not hmac.compare_digest(headers.get("authorization", "").encode(), expected.encode()):
        ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
        words = "Only Stepwatch's Alertmanager may post alerts here. Expected: its password.\n"
        raise WebhookError(text("401 Unauthorized", words, ask))


def timestamp(time: str) -> float:
    """Return a time of Alertmanager's or Prometheus' API in Unix seconds.

    Raises:
        ValueError: It is invalid.
    """
    whole, dot, rest = time.replace("Z", "+00:00").partition(".")
    if dot:  # Go writes as many digits as it needs, Python 3.10 reads three or six
        digits = len(rest) - len(rest.lstrip("0123456789"))
        whole += f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(whole).timestamp()

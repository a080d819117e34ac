"""What the services share that Alertmanager notifies: its password, and HTML pages of their own."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path

from exporter.credentials import authorization
from exporter.http.message import Answer, text


class WebhookError(Exception):
    """Raised when a request is refused; holds the answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def require_password(headers: Mapping[str, str], file: Path | None) -> None:
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
    expected = authorization(password).encode()
    if not hmac.compare_digest(headers.get("authorization", "").encode(), expected):
        ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
        words = "Only Stepwatch's Alertmanager may post alerts here. Expected: its password.\n"
        raise WebhookError(text("401 Unauthorized", words, ask))


_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;color:#1f2328}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #d0d7de;overflow-wrap:anywhere}button{font:inherit;padding:.6rem 1.2rem}"
)
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Cache-Control", "no-store"),
    # With no-referrer a browser sends a form with `Origin: null`, which the host check refuses.
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)


def clock(seconds: float) -> str:
    """Return a Unix time as pages show it: day and local time."""
    return time.strftime("%d %b %H:%M:%S", time.localtime(seconds))


def html_page(title: str, body: str) -> Answer:
    """Return a page; ``title`` is text, ``body`` is HTML."""
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{body}</html>"
    )
    return Answer("200 OK", "text/html; charset=utf-8", page.encode("utf-8", "backslashreplace"), HEADERS)

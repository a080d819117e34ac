"""Every other service, by Apprise, which hides the answers of services."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from threading import Lock
from typing import Any

from exporter.notifier.channel import Outcome, SecretFileError, Secrets, Window, plain
from exporter.notifier.fitting import cut, fitted
from exporter.notifier.wording import Card, Wording

MOST_BYTES = 3000
"""Of a text: most services take that much, Apprise cuts what one does not take."""

_FACT_BYTES = 700
_NOT_INSTALLED = "the package apprise is not installed. Fix: pip install 'stepwatch[apprise]'"
_STATUS = re.compile(r"\berror[= ](\d{3})\b")
_LOGGING = Lock()
"""Held while Apprise sends: all of its channels log to one logger."""
_TYPES = {"critical": "failure", "warning": "warning", "info": "info", "resolved": "success"}


class Apprise:
    """A service by its Apprise URL."""

    windows: tuple[Window, ...] = ()

    def __init__(self, secrets: Secrets, wording: Wording) -> None:
        self._secrets, self._wording = secrets, wording

    @property
    def takes_picture(self) -> bool:
        """Mail does. To others it is a second request, whose failure would be the message's."""
        try:
            return self._secrets.url().lower().startswith(("mailto://", "mailtos://"))
        except SecretFileError:
            return False

    def compose(self, cards: Sequence[Card]) -> tuple[Any, int]:
        return fitted(
            cards,
            self._wording.merged,
            self._write,
            lambda message: len(message["body"].encode("utf-8", "replace")),
            MOST_BYTES,
        )

    def _write(self, card: Card, items: Sequence[str], left: int) -> Any:
        lines = [*(cut(fact, _FACT_BYTES) for fact in card.facts), *(f"- {item}" for item in items)]
        if left:
            lines.append(self._wording.and_more(left))
        lines += [f"{link.words}: {link.url}" for link in card.links]
        body = "\n".join(lines)
        return {"title": plain(card.title), "body": plain(body), "notify_type": _TYPES[card.state]}

    def send(self, message: Any, picture: bytes | None) -> Outcome:
        url = self._secrets.url()
        try:
            import apprise  # noqa: PLC0415  (30 MB, and installed by those who use it)
            from apprise.attachment.memory import AttachMemory  # noqa: PLC0415
        except ImportError:
            return Outcome("not_installed", _NOT_INSTALLED)
        target = apprise.Apprise()
        curve = None
        if picture:
            curve = AttachMemory(content=picture, name="curve.png", mimetype="image/png")  # type: ignore[no-untyped-call]
        # What it logs holds bodies and URLs: only we read it.
        own = logging.getLogger("apprise")
        own.propagate = False
        capture = apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
        with _LOGGING, capture as log:
            if not target.add(url):
                return Outcome("secret_file", "url_file does not hold an Apprise URL that this version knows")
            done = target.notify(
                **message,
                body_format=apprise.NotifyFormat.TEXT,
                interpret_escapes=False,
                attach=curve,
            )
            logged = self._secrets.hidden(" ".join(log.getvalue().split()))
        if done:
            return Outcome(text="Apprise reports success; it does not show what the service answered")
        found = _STATUS.search(logged)
        status = int(found[1]) if found else 0
        if status == 429:
            return Outcome("rate_limit", logged, 60.0)
        if status in (401, 403, 404, 410):
            return Outcome("http", logged)
        return Outcome("server", logged or "Apprise reports a failure and no reason")

"""A thread that asks the watchdog what keeps the stack from alerting, so that no page waits for it."""

from __future__ import annotations

import time
from threading import Event, Thread

import orjson

from exporter.installation import adapt
from exporter.runs.remote import web

INTERVAL_SECONDS = 5.0
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""A restart of the watchdog takes a second or two."""
LARGEST_ANSWER = 1 << 20


class Watchdog:
    """What the watchdog finds; asked from ``start`` on, if there is one.

    ``findings`` are its words, one text a fault, or why it gives none; empty while all is well.
    """

    def __init__(self, url: str | None) -> None:
        self.findings: tuple[str, ...] = ()
        self._url = url
        self._answered = time.monotonic()
        self._stop = Event()

    def start(self) -> None:
        """Begin to ask, in the background."""
        if self._url:
            Thread(target=self._run, args=(self._url,), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def _run(self, url: str) -> None:
        while not self._stop.is_set():
            self._ask(url.rstrip("/"))
            self._stop.wait(INTERVAL_SECONDS)

    def _ask(self, url: str) -> None:
        try:
            answer = web.get(f"{url}/api/v1/findings", {}, ANSWER_SECONDS, most=LARGEST_ANSWER)
            found = orjson.loads(answer.body)["findings"]
            self.findings = tuple(f"{each['summary']}. {each['description']}" for each in found)
            self._answered = time.monotonic()
        except (web.PollError, ValueError, KeyError, TypeError) as problem:
            if time.monotonic() - self._answered > SILENT_SECONDS:
                self.findings = (adapt(f"The watchdog does not answer: {problem} Fix: `make up`."),)

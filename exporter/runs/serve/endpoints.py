"""The run exporter's metrics, health and marks, by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.logs.names import nearest

KIND = "application/json"  # A browser sends this to another site only if that allows it, which we never do
MOST_BYTES = 16 * 1024
NOTE_CHARACTERS = 100  # the note becomes a label, whose text Prometheus keeps for as long as the series
NO_NOTE = "mark"
Metrics = Callable[[], bytes]
Report = Callable[[], tuple[bool, str]]  # Gives whether the exporter is well, and a text about it
MarkRun = Callable[[str, str], None]  # Marks a run, by its name, with a note; may raise ``RefusedError``


class RefusedError(Exception):
    """Raised when a request is refused: its HTTP status, and the reason."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


class UnknownRunError(RefusedError):
    """Raised when no run has that name; ``known`` are the names of all runs."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__("404 Not Found", unknown(name, known))


def unknown(name: str, known: Iterable[str]) -> str:
    """The message about a run that is not among the known ones, with the nearest names."""
    near = nearest(name, known)
    others = f"Similar names: {', '.join(near)}." if near else "No run exists yet."
    return f"There is no run named {name}. {others}"


def table(metrics: Metrics, mark: MarkRun, report: Report) -> Table:
    """Return the routes."""

    def health(_: Request) -> Answer:
        well, words = report()
        return text("200 OK" if well else "503 Service Unavailable", words)

    def marked(request: Request) -> Answer:
        try:
            mark(*_mark(request))
        except RefusedError as refusal:
            return text(refusal.status, f"{refusal}\n")
        return text("200 OK", "ok\n")

    return {
        "/metrics": {"GET": lambda _: Answer("200 OK", CONTENT_TYPE, metrics())},
        "/-/healthy": {"GET": health},
        "/-/mark": {"POST": marked},
    }


def _mark(request: Request) -> tuple[str, str]:
    """The run's name and the note."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise RefusedError("415 Unsupported Media Type", f"Expected: a body of the Content-Type {KIND}.")
    if "content-length" not in request.headers:
        raise RefusedError("411 Length Required", "Expected: a Content-Length.")
    if len(request.body) > MOST_BYTES:
        words = f"The body is too long. Expected: at most {MOST_BYTES} bytes."
        raise RefusedError("413 Content Too Large", words)
    try:
        asked = json.loads(request.body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or asked.keys() - {"run", "note"} or not isinstance(asked.get("run"), str):
        raise RefusedError("400 Bad Request", 'Invalid mark. Expected: {"run": "its name", "note": "why"}.')
    note = asked.get("note")
    if note is None or note == "":
        note = NO_NOTE
    if not isinstance(note, str) or not note.isprintable() or len(note) > NOTE_CHARACTERS:
        raise RefusedError(
            "400 Bad Request",
            f"Invalid `note`. Expected: one line of at most {NOTE_CHARACTERS} printable characters.",
        )
    return asked["run"], note

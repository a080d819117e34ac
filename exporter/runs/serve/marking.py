"""A request for a mark: what it may hold, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from exporter.http.message import Request
from exporter.runs.logs.names import nearest

KIND = "application/json"
"""A browser sends this to another site only if that allows it, which we never do."""

MOST_BYTES = 16 * 1024
NOTE_CHARACTERS = 100
"""The note becomes a label, whose text Prometheus keeps for as long as the series."""
NO_NOTE = "mark"


class RefusedError(Exception):
    """Raised when a request cannot be granted: its HTTP status, and the reason in words."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


class UnknownRunError(RefusedError):
    """Raised when there is no run of that name; ``known`` are those that there are."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__("404 Not Found", unknown(name, known))


def unknown(name: str, known: Iterable[str]) -> str:
    """What is to be said of a run that is not among the known ones."""
    near = nearest(name, known)
    others = f"The nearest there are: {', '.join(near)}." if near else "There is none yet."
    return f"There is no run named {name}. {others}"


def read(request: Request) -> tuple[str, str]:
    """Return the run's name and the note.

    Raises:
        RefusedError: it is no such request, or holds what a note may not.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise RefusedError("415 Unsupported Media Type", f"Expected: a body of the Content-Type {KIND}.")
    if "content-length" not in request.headers:
        raise RefusedError("411 Length Required", "Expected: a Content-Length.")
    if len(request.body) > MOST_BYTES:
        words = f"The body is too long. Expected: at most {MOST_BYTES} bytes."
        raise RefusedError("413 Content Too Large", words)
    return _mark(request.body)


def _mark(body: bytes) -> tuple[str, str]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or asked.keys() - {"run", "note"} or not isinstance(asked.get("run"), str):
        raise RefusedError(
            "400 Bad Request", 'The body is no mark. Expected: {"run": "its name", "note": "why"}.'
        )
    return asked["run"], _note(asked.get("note"))


def _note(note: Any) -> str:
    if note is None or note == "":
        return NO_NOTE
    if not isinstance(note, str) or not note.isprintable() or len(note) > NOTE_CHARACTERS:
        raise RefusedError(
            "400 Bad Request",
            f"The note is no note. Expected: one line of at most {NOTE_CHARACTERS} printable characters.",
        )
    return note

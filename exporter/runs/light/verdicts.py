"""Verdicts of people on alerts, false alarm or right: their file, and the page to which messages link."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import orjson

from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table

NAME = "verdicts.jsonl"
MOST_BYTES = 4 << 20
"""Of the file: some 20,000 verdicts. Anyone who reaches the port may write them."""

WORDS = {"false_alarm": "false alarm", "right": "right", "known": "right, but known"}
"""What may be said, and in words."""


class FullError(Exception):
    """Raised when the file may not grow further."""


class Verdict(NamedTuple):
    """A verdict on an alert; times are in seconds since the epoch.

    Attributes:
        run: The run that it is about.
        alert: Its name.
        since: When it began to fire, in whole seconds; 0 if that is not known.
        verdict: One of ``WORDS``.
        note: Why; may be empty.
        at: When it was given.
    """

    run: str
    alert: str
    since: int
    verdict: str
    note: str
    at: float


class VerdictLog:
    """The file in a folder of ours: JSON lines, only appended.

    Without a folder, verdicts last as long as the process.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder else None
        self._kept: list[Verdict] = []
        self._lock = threading.Lock()

    def add(self, verdict: Verdict) -> None:
        """Append one; it is on the disk when this returns.

        Raises:
            FullError: The file is as long as it may be.
            OSError: It cannot be written.
        """
        line = f"{json.dumps(verdict._asdict())}\n".encode()
        with self._lock:
            if self._path is None:
                self._kept.append(verdict)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(file).st_size
                if size + len(line) > MOST_BYTES:
                    raise FullError
                # A line that a full disk or a crash cut off must not swallow this one.
                cut = size and os.pread(file, 1, size - 1) != b"\n"
                os.write(file, b"\n" * bool(cut) + line)
                os.fsync(file)
            finally:
                os.close(file)

    def latest(self) -> list[Verdict]:
        """Return the last verdict on each alert about a run since some time, the oldest first.

        Raises:
            OSError: The file cannot be read.
        """
        found: dict[tuple[str, str, int], Verdict] = {}
        for verdict in self._all():
            found.pop(verdict[:3], None)
            found[verdict[:3]] = verdict
        return list(found.values())

    def _all(self) -> Iterator[Verdict]:
        if self._path is None:
            yield from list(self._kept)
            return
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    yield Verdict(**json.loads(line))


FORM = "application/x-www-form-urlencoded"
NOTE_CHARACTERS, NAME_CHARACTERS = 200, 1000
_ALERT = re.compile(r"[A-Za-z][A-Za-z0-9]{0,99}")

Page = Callable[[Verdict], Answer]
"""The page on an alert, with what was said of it; a verdict that says nothing yet has an empty one."""


class Verdicts:
    """The routes about verdicts; ``page`` draws the page."""

    def __init__(self, log: VerdictLog, page: Page) -> None:
        self._log, self._page = log, page

    def routes(self) -> Table:
        """The page and its form, and all verdicts as JSON."""
        return {
            "/verdict": {"GET": self._asked, "POST": self._said},
            "/api/v1/verdicts": {"GET": self._all},
        }

    def _asked(self, request: Request) -> Answer:
        try:
            about = _about(request)
            known = (each for each in self._log.latest() if each[:3] == about[:3])
            return self._page(next(known, about))
        except ValueError as problem:
            return text("400 Bad Request", f"{problem}\n")
        except OSError as error:
            return _unavailable("read", error)

    def _said(self, request: Request) -> Answer:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            return text("415 Unsupported Media Type", f"Expected: a body of the Content-Type {FORM}.\n")
        try:
            verdict = _verdict(request)
            self._log.add(verdict)
        except ValueError as problem:
            return text("400 Bad Request", f"{problem}\n")
        except FullError:
            words = "Not recorded: verdicts.jsonl is full. Fix: move the file away."
            return text("507 Insufficient Storage", f"{words}\n")
        except OSError as error:
            return _unavailable("written", error)
        return self._page(verdict)

    def _all(self, _: Request) -> Answer:
        try:
            found = [each._asdict() for each in self._log.latest()]
        except OSError as error:
            return _unavailable("read", error)
        return Answer("200 OK", "application/json", orjson.dumps({"verdicts": found}) + b"\n")


def _about(request: Request) -> Verdict:
    """The alert that a query names.

    Raises:
        ValueError: It names none.
    """
    asked = {key: values[0] for key, values in parse_qs(request.query).items()}
    run, alert, since = asked.get("run", ""), asked.get("alert", ""), asked.get("since", "0")
    if not run or not run.isprintable() or len(run) > NAME_CHARACTERS or not _ALERT.fullmatch(alert):
        raise ValueError("Expected: ?alert=NAME&run=NAME.")
    if not since.isdecimal() or len(since) > 12:
        raise ValueError("Invalid `since`. Expected: whole seconds since 1970.")
    return Verdict(run, alert, int(since), "", "", 0.0)


def _verdict(request: Request) -> Verdict:
    """What a form says of the alert that the query names.

    Raises:
        ValueError: The form or the query is not such.
    """
    fields = parse_qs(request.body.decode("utf-8", "replace"), max_num_fields=8)
    choice, note = (fields.get(name, [""])[0].strip() for name in ("verdict", "note"))
    if choice not in WORDS:
        raise ValueError(f"Invalid `verdict`. Expected: one of {', '.join(WORDS)}.")
    if not note.isprintable() or len(note) > NOTE_CHARACTERS:
        expected = f"one line of at most {NOTE_CHARACTERS} printable characters"
        raise ValueError(f"Invalid `note`. Expected: {expected}.")
    return _about(request)._replace(verdict=choice, note=note, at=time.time())


def _unavailable(done: str, error: OSError) -> Answer:
    words = (
        f"Verdicts cannot be {done}: {error.strerror}. Fix: free space, or correct the permissions of the "
        "state folder."
    )
    return text("503 Service Unavailable", f"{words}\n")

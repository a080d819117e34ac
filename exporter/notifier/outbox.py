"""Alertmanager's notifications, and their queue on disk with the state of their delivery.

A message is on the disk before Alertmanager is answered, and leaves the queue after the robot's answer was
read. So a kill at any moment loses nothing; between a robot's answer and the note of it, it costs a second
delivery of one request.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from exporter.engine_client import timestamp

_TEST_ROUTE = "(test) "


class PayloadError(ValueError):
    """Raised when a body is not what Alertmanager sends."""


@dataclass(frozen=True)
class Alert:
    """One alert of a group; ``begun`` and ``ended`` are Unix seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    firing: bool
    begun: float
    ended: float

    @property
    def name(self) -> str:
        """Its ``alertname``."""
        return self.labels.get("alertname", "")


@dataclass(frozen=True)
class Notification:
    """A change of a group.

    ``group`` is Alertmanager's key of it. ``change`` identifies which alerts fire and which ended. ``labels``
    are those that all alerts share. ``truncated`` alerts were left out by Alertmanager.
    """

    receiver: str
    group: str
    change: str
    labels: Mapping[str, str]
    alerts: tuple[Alert, ...]
    truncated: int = 0

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.firing)

    @property
    def is_test(self) -> bool:
        """Whether `make test-alert TO=name` sent it."""
        return self.receiver.startswith(_TEST_ROUTE)

    @property
    def test(self) -> str:
        """The mark of a test, by which its sender finds it again."""
        return self.labels.get("test", "") if self.is_test else ""


def parse(body: bytes | str) -> tuple[Notification, str]:
    """Return what a webhook's body says, and its text to keep, which ``parse`` takes as well."""
    try:
        document = json.loads(body)
        kept: list[dict[str, Any]] = [
            {name: str(each[name]) for name in ("fingerprint", "status", "startsAt", "endsAt")}
            | {name: _texts(each.get(name)) for name in ("labels", "annotations")}
            for each in document["alerts"]
        ]
        members = (f"{each['fingerprint']} {each['status']} {each['startsAt']}" for each in kept)
        notification = Notification(
            # Alertmanager writes it as a regular expression: `\(test\) chat`. Names have no backslash.
            receiver=str(document["receiver"]).replace("\\", ""),
            group=str(document["groupKey"]),
            # the same for the same alerts in the same state, in whichever order, and for nothing else
            change=hashlib.sha256("\n".join(sorted(members)).encode("utf-8", "backslashreplace")).hexdigest(),
            labels=_texts(document.get("commonLabels")),
            alerts=tuple(
                Alert(
                    each["labels"],
                    each["annotations"],
                    each["status"] == "firing",
                    timestamp(each["startsAt"]),
                    timestamp(each["endsAt"]),
                )
                for each in kept
            ),
            truncated=int(document.get("truncatedAlerts") or 0),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise PayloadError(str(problem)) from None
    if not kept:
        raise PayloadError("it has no alert")
    text = {
        "receiver": notification.receiver,
        "groupKey": notification.group,
        "commonLabels": notification.labels,
        "truncatedAlerts": notification.truncated,
        "alerts": kept,
    }
    return notification, json.dumps(text, separators=(",", ":"))


def _texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in (values or {}).items()}


NAME = "outbox.db"
KEPT_SECONDS = 7 * 86400.0  # how long what was delivered is remembered, for its page and against repetitions
WAITING, DELIVERED, FAILED = "waiting", "delivered", "failed"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    grouped TEXT NOT NULL,
    change TEXT NOT NULL,
    test TEXT NOT NULL,
    received REAL NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    alone INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    answer TEXT NOT NULL DEFAULT '',
    ended REAL
);
CREATE INDEX IF NOT EXISTS by_state ON message (state, channel, id);
CREATE INDEX IF NOT EXISTS by_group ON message (channel, grouped, id);
CREATE INDEX IF NOT EXISTS by_test ON message (test);
CREATE TABLE IF NOT EXISTS attempt (address TEXT NOT NULL, at REAL NOT NULL);
"""
_COLUMNS = "id, channel, test, received, payload, state, alone, attempts, reason, answer, ended"


class OutboxError(Exception):
    """Raised when the queue cannot be used; says why, and the fix."""


class Entry(NamedTuple):
    """A message of the queue: when it came and ended (Unix seconds), and what the last attempt got."""

    id: int
    channel: str
    test: str
    received: float
    payload: str
    state: str
    alone: bool
    attempts: int
    reason: str
    answer: str
    ended: float | None


class Outbox:
    """The queue in a folder, for one process.

    A change of a group that comes again is delivered once more if ``repeat`` seconds have passed since, as
    Alertmanager repeats what still fires. Raises OutboxError.
    """

    def __init__(self, folder: Path, repeat: float) -> None:
        self.path = folder / NAME
        self._repeat, self._lock = repeat, Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
            self._db.executescript(_SCHEMA)
        except BlockingIOError:
            raise OutboxError(
                f"{self.path}: another process uses it. Expected: one notifier for each state folder. "
                "Fix: stop the other one."
            ) from None
        except OSError as problem:
            raise OutboxError(
                f"{self.path} cannot be used: {problem.strerror}. Expected: a folder that this user may "
                "write to. Fix: name another one with --state-dir."
            ) from None
        except sqlite3.Error as problem:
            raise OutboxError(
                f"{self.path} cannot be used: {problem}. Expected: the queue that this service wrote. "
                "Fix: move the file aside; notifications in it that were not delivered are lost."
            ) from None

    def add(self, channel: str, group: str, change: str, payload: str, test: str = "") -> bool:
        """Take a message, on disk when this returns; false if its group's last message had that change."""
        now = time.time()
        with self._transaction():
            last = self._db.execute(
                "SELECT change, received FROM message WHERE channel = ? AND grouped = ?"
                " ORDER BY id DESC LIMIT 1",
                (channel, group),
            ).fetchone()
            if last and last[0] == change and 0 <= now - last[1] < self._repeat:
                return False
            self._db.execute(
                "INSERT INTO message (channel, grouped, change, test, received, payload, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (channel, group, change, test, now, payload, WAITING),
            )
        return True

    def waiting(self, channel: str) -> list[Entry]:
        """Return the messages to deliver, the oldest first."""
        return self._entries("state = ? AND channel = ? ORDER BY id LIMIT 500", WAITING, channel)

    def entry(self, number: int) -> Entry | None:
        """Return a message by its id."""
        return next(iter(self._entries("id = ?", number)), None)

    def latest(self, test: str | None = None, most: int = 200) -> list[Entry]:
        """Return messages, the latest first: all, or those of a test."""
        if test is None:
            return self._entries("1 ORDER BY id DESC LIMIT ?", most)
        return self._entries("test = ? ORDER BY id DESC LIMIT ?", test, most)

    def queue(self) -> dict[str, tuple[int, float]]:
        """Return by channel how many messages wait, and when the oldest of them came; not those of tests."""
        with self._lock:
            rows = self._db.execute(
                "SELECT channel, count(*), min(received) FROM message WHERE state = ? AND test = ''"
                " GROUP BY channel",
                (WAITING,),
            ).fetchall()
        return {channel: (count, oldest) for channel, count, oldest in rows}

    def attempt(self, address: str, entries: Sequence[Entry], now: float) -> int:
        """Note a request before it is made, for the limits; returns its number for ``attempted``."""
        with self._transaction():
            made = self._db.execute("INSERT INTO attempt VALUES (?, ?)", (address, now)).lastrowid
            self._db.executemany(
                "UPDATE message SET attempts = attempts + 1 WHERE id = ?", [(each.id,) for each in entries]
            )
        return made or 0

    def attempted(self, number: int, now: float) -> None:
        """Note that a request is over: the robot saw it no later than now."""
        with self._transaction():
            self._db.execute("UPDATE attempt SET at = ? WHERE rowid = ?", (now, number))

    def attempts(self, address: str, since: float, now: float) -> list[float]:
        """Return when requests were made after a time; none later than now, as a clock may be set back."""
        with self._lock:
            rows = self._db.execute(
                "SELECT at FROM attempt WHERE address = ? AND at > ? AND at <= ? ORDER BY at",
                (address, since, now),
            ).fetchall()
        return [at for (at,) in rows]

    def end(self, entries: Sequence[Entry], state: str, reason: str, answer: str) -> None:
        """Take messages out of the queue, as delivered or failed."""
        self._update(
            "state = ?, reason = ?, answer = ?, ended = ?", entries, state, reason, answer, time.time()
        )

    def keep(self, entries: Sequence[Entry], reason: str, answer: str, *, alone: bool = False) -> None:
        """Leave messages in the queue; ``alone``: they are not merged with others any more."""
        self._update("reason = ?, answer = ?, alone = max(alone, ?)", entries, reason, answer, alone)

    def prune(self, now: float) -> None:
        """Forget what ended long ago."""
        with self._transaction():
            self._db.execute("DELETE FROM message WHERE ended < ?", (now - KEPT_SECONDS,))
            self._db.execute("DELETE FROM attempt WHERE at < ?", (now - 3600,))

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._db.close()
        os.close(self._held)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _update(self, what: str, entries: Sequence[Entry], *values: object) -> None:
        with self._transaction():
            self._db.executemany(
                f"UPDATE message SET {what} WHERE id = ?",  # noqa: S608  (texts of this module)
                [(*values, each.id) for each in entries],
            )

    def _entries(self, where: str, *values: object) -> list[Entry]:
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM message WHERE {where}", values).fetchall()  # noqa: S608
        return [Entry(*row) for row in rows]

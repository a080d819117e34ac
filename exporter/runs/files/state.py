"""What an exporter restart could not rebuild from logs, in one SQLite file of Stepwatch's own folder.

verl empties its log on every start, a resume included: best, start, peak and noise of the steps before are
then nowhere else. Run folders are only read.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from exporter.runs.files.mounts import PATIENCE_SECONDS, Call, HungError, Mount

logger = logging.getLogger(__name__)
T = TypeVar("T")
NAME, ASIDE = "runs.sqlite", "runs.sqlite.aside"
SCHEMA = (  # a file with any other one is not ours, or of another version
    "CREATE TABLE logs_1 (log BLOB PRIMARY KEY, file BLOB, device INTEGER, writer INTEGER, state BLOB)",
    "CREATE TABLE since_1 (time REAL)",
)
DIGEST = 32  # bytes before each state: what its content must add up to
RunSnapshots = dict[str, dict[str, Any]]  # what must survive, as plain JSON values, by run


@dataclass(slots=True)
class Saved:
    """What was known of a log and the runs in it.

    ``carry`` is what each run held before the log's present content began (``None``: nothing),
    ``latest`` what they held after reading up to ``offset``. ``head`` is the start of the content,
    ``watched`` the runs that logged while it was watched. ``writer``: whether a writer was there;
    ``None`` if none was ever seen. ``marks`` are the operator's, by run: each takes effect where the run
    passes its place, and ``carry`` or ``latest`` say which places are behind it.
    """

    carry: RunSnapshots | None
    latest: RunSnapshots
    head: str
    offset: int
    watched: list[str]
    writer: bool | None = None
    marks: dict[str, list[list[Any]]] = field(default_factory=dict)

    def before(self, head: bytes, size: float) -> RunSnapshots | None:
        """What the runs held before a log with this start and size."""
        same = size >= self.offset and head.hex().startswith(self.head)
        return self.carry if same else self.latest


class Known(NamedTuple):
    """What is known of a log without its state: its file read last, that file's device, its writer."""

    file: bytes
    device: int
    writer: bool


class State:
    """Keeps the state of each log; ``None`` as folder keeps nothing.

    A folder that hangs raises HungError within seconds. What could not be written is written later;
    ``errors`` counts the failures. ``since`` is when an exporter with this folder first looked at its logs,
    in seconds since the epoch: what ended before is history.
    """

    def __init__(self, folder: Path | None) -> None:
        self.since, self.errors = time.time(), 0
        self.thread = Mount(os.path.abspath(folder or ""))  # noqa: PTH100
        self._path = folder / NAME if folder else None
        self._known: dict[bytes, Known] | None = None if folder else {}
        self._pending: dict[bytes, tuple[Known, bytes] | None] = {}  # None: to be forgotten
        self._opening: Call[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether it is known of which logs there is a state: looked up once."""
        if self._known is None:
            self._opening = self._opening or self.thread.start(self._open)
            if not self.thread.hangs and self._opening.wait(PATIENCE_SECONDS):
                self._opening.result()
        return self._known is not None

    def forget_deleted(self, below: str, apart: Iterable[str]) -> None:
        """Forget the logs below a folder that are gone, but not below others within it, which may hang.

        Of a log in several files any may be there.

        The file system must be the same: what is not mounted is not deleted. Raises OSError.
        """
        below = f"{below.rstrip('/')}/"
        others = tuple(f"{each}/" for each in apart if each.startswith(below))
        for key, known in list((self._known or {}).items()):
            log = os.fsdecode(key)
            if not f"{log}/".startswith(below) or log.startswith(others):
                continue
            there = log if key == known.file else os.path.dirname(log)  # noqa: PTH120
            gone = not os.path.lexists(known.file) and not os.path.lexists(there)
            if gone:
                while not os.path.lexists(there):
                    there = os.path.dirname(there)  # noqa: PTH120
                if os.stat(there).st_dev == known.device:  # noqa: PTH116
                    self._pending[key] = None

    def has_writer(self, log: str) -> bool:
        """Whether a writer was there when the log's state was written."""
        known = (self._known or {}).get(_key(log))
        return known is not None and known.writer

    def load(self, log: Path) -> Saved | None:
        """What was saved for a log; nothing if that is unreadable or damaged. Raises HungError."""
        key = _key(log)
        pending = self._pending.get(key)
        if pending is None and (self._path is None or (self._known is not None and key not in self._known)):
            return None
        content = pending[1] if pending else b""
        if not pending:
            query = "SELECT state FROM logs_1 WHERE log = ?"
            try:
                rows = self.thread.call(partial(self._use, lambda db: db.execute(query, (key,)).fetchall()))
            except HungError:
                raise
            except (OSError, sqlite3.Error):
                return None
            content = rows[0][0] if rows and isinstance(rows[0][0], bytes) else b""
        body = content[DIGEST:]
        return Saved(**orjson.loads(body)) if body and sha256(body).digest() == content[:DIGEST] else None

    def save(self, log: Path, saved: Saved, file: Path | None = None, device: int = 0) -> None:
        """Keep it in place of what was saved, with the next ``flush``; ``file`` was read last."""
        if self._path:
            body = orjson.dumps(saved)
            content = sha256(body).digest() + body
            known = Known(_key(file or log), device, bool(saved.writer))
            self._pending[_key(log)] = known, content

    def forget(self, log: Path) -> None:
        """Remove the state of a log that no longer exists, with the next ``flush``."""
        if self._known is None or _key(log) in self._known:
            self._pending[_key(log)] = None

    def flush(self) -> None:
        """Write what is new, all or nothing."""
        new = dict(self._pending)
        if not new:
            return

        def write(db: sqlite3.Connection) -> None:
            db.executemany(
                "DELETE FROM logs_1 WHERE log = ?", [(log,) for log, row in new.items() if not row]
            )
            rows = [(log, *row[0], row[1]) for log, row in new.items() if row]
            db.executemany("INSERT OR REPLACE INTO logs_1 VALUES (?, ?, ?, ?, ?)", rows)

        try:
            self.thread.call(partial(self._use, write))
        except (OSError, sqlite3.Error):
            self.errors += 1
            return
        for log, row in new.items():
            if self._pending.get(log) is row:
                del self._pending[log]
            if self._known is not None and row:
                self._known[log] = row[0]
            elif self._known is not None:
                self._known.pop(log, None)

    def _open(self) -> None:
        def read(db: sqlite3.Connection) -> dict[bytes, Known]:
            self.since = float(db.execute("SELECT time FROM since_1").fetchone()[0])
            rows = db.execute("SELECT log, file, device, writer FROM logs_1")
            return {bytes(log): Known(bytes(file), int(dev), bool(writer)) for log, file, dev, writer in rows}

        known: dict[bytes, Known] = {}
        # The first that cannot be saved is counted.
        with suppress(OSError, sqlite3.Error, TypeError, ValueError):
            known = self._use(read)
        self._known = known

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in one transaction, in the thread of the folder. Raises OSError and sqlite3.Error.

        The file is opened anew each time: it may be deleted or replaced at any time. A bad one is set aside.
        """
        path = self._path or Path()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._transaction(path, work)
        except sqlite3.OperationalError:  # no room, no right, or locked: it may pass
            raise
        except sqlite3.DatabaseError as error:
            path.replace(path.with_name(ASIDE))
            path.with_name(f"{NAME}-journal").unlink(missing_ok=True)
            text = "%s is damaged, or of another version: %s. It was moved to %s; logs are read again. %s"
            logger.warning(text, path, error, ASIDE, "Fix: restart jobs that had registered servers.")
            return self._transaction(path, work)

    def _transaction(self, path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
        with closing(_connect(path)) as db, db:
            db.execute("BEGIN")
            found = tuple(row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL"))
            if not found:
                for statement in SCHEMA:
                    db.execute(statement)
                db.execute("INSERT INTO since_1 VALUES (?)", (self.since,))
            elif found != SCHEMA:
                raise sqlite3.DatabaseError("another schema")
            return work(db)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE_SECONDS / 2, isolation_level=None)


def _key(path: Path | str) -> bytes:
    return os.fsencode(os.path.abspath(path))  # noqa: PTH100  (not resolved: links may lead elsewhere tomorrow)

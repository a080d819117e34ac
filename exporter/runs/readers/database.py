"""Read the rows that a tracker adds to a table of a SQLite database, without keeping its writer waiting.

A database whose newest rows stand in its write-ahead log is opened to be read only, which takes no lock
that a writer waits for. Any other is read without locks: what changed meanwhile is read again later.
That way nothing is ever created beside the database either, and it may lie on a file system that is
mounted read-only (https://www.sqlite.org/wal.html, https://www.sqlite.org/uri.html).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from exporter.runs.readers.follow import Block, Parts, Reader, status_of, version

MAGIC = b"SQLite format 3\0"
ROWS = 1000
BYTES = 1024 * 1024
"""Of one look: rows may be large, and anyone who reads them keeps a snapshot of the database."""
LONGEST = 4 * 1024 * 1024  # characters of one row's metrics; longer ones hold no numbers of a step
_ROWS = "SELECT * FROM metrics WHERE id > ? AND length(metrics) <= ? ORDER BY id LIMIT ?"
_NEWEST = "SELECT seq FROM sqlite_sequence WHERE name = 'metrics'"
_CONFIG = "SELECT config FROM configs WHERE run_name = ?"
_NEEDED = frozenset({"id", "run_name", "step", "metrics", "timestamp"})


class _BusyError(Exception):
    """The database is being written in a way that only locks would make safe to read."""


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, and waits for no one. Raises _BusyError or OSError."""
    if _companion(path, "-journal"):
        raise _BusyError
    mode = "mode=ro" if _companion(path, "-wal") else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=0)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield database
    except sqlite3.Error as error:
        passes = getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        if "malformed" in str(error):
            passes = not _companion(path, "-wal")  # it changed while it was read without a lock
        if passes:
            raise _BusyError from error
        raise OSError(errno.EIO, str(error), str(path)) from error


def _companion(path: Path, end: str) -> os.stat_result | None:
    """The status of a file beside the database, unless it is missing or empty."""
    try:
        status = path.with_name(path.name + end).stat()
    except FileNotFoundError:
        return None
    return status if status.st_size else None


def is_companion(path: Path) -> bool:
    """Whether this is one of the files that SQLite keeps beside a database."""
    name, _, end = path.name.rpartition("-")
    return bool(name) and end in ("wal", "shm", "journal") and path.with_name(name).exists()


def holds_metrics(path: Path) -> bool | None:
    """Whether it has a tracker's table; ``None`` if there is no table yet. Raises OSError."""
    try:
        with _opened(path) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
            empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            return columns >= _NEEDED or (None if empty else False)
    except _BusyError:
        return None
    except OSError as error:
        if "not a database" in (error.strerror or ""):
            return False
        raise


class Database(Reader):
    """The rows of the table ``metrics`` as lines of JSON, each once.

    A line is ``{"run": name, "id": text, "step": number, "time": text, "metrics": {...}}``; the first of a
    run follows ``{"run": name, "id": text, "config": {...}}``. ``offset`` is the id of the last row: ids rise
    and are never given twice.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._inode: int | None = None
        self._configured: set[str] = set()

    def rewind(self) -> None:
        """Read all rows again."""
        self.offset, self._seen = 0, ()
        self._configured.clear()

    def poll(self, _now: float) -> Block | None:
        """The next rows; ``None`` if none can be read without a lock now. Raises OSError."""
        path, (status, log, seen) = self.path, _versions(self.path)
        if seen == self._seen:
            return None
        restarted = self._inode is not None and self._inode != status.st_ino
        try:
            with _opened(path) as database:
                newest = database.execute(_NEWEST).fetchone()  # deleted rows included
                restarted = restarted or (int(newest[0]) if newest else 0) < self.offset
                start, known = (0, set[str]()) if restarted else (self.offset, set(self._configured))
                rows, more = _rows(database, start, known)
        except _BusyError:
            return None
        now, log, changed = _versions(path)
        if not log and seen != changed:
            return None  # it changed while it was read without a lock
        self._inode, self._seen, self._configured = now.st_ino, () if more else seen, known
        self.offset = rows[-1]["id"] if rows else start
        if not rows and not restarted:
            return None
        lines: list[bytes] = []
        for row in rows:
            about = {"run": row["run_name"], "id": row.get("run_id", "")}
            if config := row.get("config"):
                lines.append(orjson.dumps({**about, "config": orjson.Fragment(config)}))
            logged = {
                "step": row["step"],
                "time": row["timestamp"],
                "metrics": orjson.Fragment(row["metrics"]),
            }
            lines.append(orjson.dumps(about | logged))
        written = max(now.st_mtime, log.st_mtime if log else 0.0)
        size = sum(map(len, lines))
        return Block(lines, start, size, restarted=restarted, written=written, more=more)


def _versions(path: Path) -> tuple[os.stat_result, os.stat_result | None, tuple[object, ...]]:
    """The status of a database and of its log, and what changes when the database does."""
    status, log = status_of(path), _companion(path, "-wal")
    return status, log, (*version(status), *(version(log) if log else ()))


def _rows(database: sqlite3.Connection, after: int, known: set[str]) -> tuple[list[dict[str, Any]], bool]:
    """Some rows, the first of a run that is not ``known`` with its ``config``, and whether there are more."""
    cursor = database.execute(_ROWS, (after, LONGEST, ROWS))
    names = [column[0] for column in cursor.description]
    rows: list[dict[str, Any]] = []
    room = BYTES
    for values in cursor:
        rows.append(dict(zip(names, values, strict=True)))
        room -= len(rows[-1]["metrics"])
        if room <= 0:
            break
    for row in rows:
        if (run := row["run_name"]) not in known:
            known.add(run)
            with suppress(sqlite3.OperationalError):  # older versions have no such table
                row["config"], *_ = database.execute(_CONFIG, (run,)).fetchone() or (None,)
    return rows, room <= 0 or len(rows) == ROWS

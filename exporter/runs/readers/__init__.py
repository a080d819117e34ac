"""Readers: each follows one way in which logs are kept in files, and hands on what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from exporter.runs.readers.archive import Archive
from exporter.runs.readers.block import Block
from exporter.runs.readers.chain import Chain
from exporter.runs.readers.database import Database
from exporter.runs.readers.document import Document
from exporter.runs.readers.events import EventFrames
from exporter.runs.readers.follow import Follower
from exporter.runs.readers.leveldb import LevelDbRecords
from exporter.runs.readers.parts import Parts


class Reader(Protocol):
    """Hands on what was written since the last call.

    ``path`` is the file that is read now, ``head`` the start of the log, ``offset`` where the next
    line starts, ``unread`` and ``size`` the bytes behind it and in all.
    """

    @property
    def path(self) -> Path: ...
    @property
    def head(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def unread(self) -> int: ...
    @property
    def size(self) -> float: ...

    def read(self, now: float) -> Block | None:
        """What is new, or ``None``; ``now`` in seconds since the epoch.

        Raises:
            OSError: the file is gone or cannot be read.
        """

    def rewind(self) -> None:
        """Start again."""


def reader_of(kind: str, parts: Parts) -> Reader:
    """A reader for what ``content`` says is in the files."""
    match kind:
        case "events":
            return Chain(parts, lambda path: Follower(path, EventFrames()))
        case "document":
            return Document(parts)
        case "compressed":
            return Archive(parts()[-1])
        case "wandb" | "swanlab":
            return Follower(parts()[-1], LevelDbRecords())
        case "database":
            return Database(parts()[-1])
    return Follower(parts()[-1])

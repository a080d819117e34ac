"""Readers: each follows one way in which logs lie in files and returns what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from exporter.runs.readers.block import Block, Parts
from exporter.runs.readers.database import Database
from exporter.runs.readers.follow import Archive, Chain, Document, Follower
from exporter.runs.readers.frames import EventFrames
from exporter.runs.readers.leveldb import LevelDbRecords


class Reader(Protocol):
    """Returns what was written since the last poll.

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

    def poll(self, now: float) -> Block | None:
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

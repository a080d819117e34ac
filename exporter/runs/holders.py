"""Which process holds a log open for writing, as Linux's ``/proc`` shows it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exporter.runs.lifecycle import GONE_SECONDS

CONFIRMATIONS = 3
"""Looks in a row that must see a writer before its absence means anything: a program that opens,
appends and closes is seen now and then, but hardly three times in a row."""

SEARCH_SECONDS = 5.0
"""A look at every process of the machine costs; known holders are looked at each time."""


@dataclass(slots=True)
class Holder:
    """What is known about the writer of one file; ``process`` is the id of the last one that was seen."""

    seen: int = 0
    link: Path | None = None
    process: str | None = None
    gone_since: float | None = None
    searched: float = field(default=-SEARCH_SECONDS)

    @property
    def confirmed(self) -> bool:
        """A process kept the file open over several looks."""
        return self.seen >= CONFIRMATIONS

    def present(self) -> bool | None:
        """Is a writer there? ``None`` when nothing can be said."""
        if not self.confirmed:
            return None
        return self.gone_since is None

    def grown(self, at: float) -> None:
        """The log grew then: if its writer had gone before, another one writes that cannot be seen."""
        if self.gone_since is not None and at > self.gone_since + SEARCH_SECONDS:
            self.seen, self.gone_since = 0, None


class Holders:
    """Looks for the writers of files. ``proc`` is where the process file system is mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.proc = proc
        self._known: dict[Path, Holder] = {}

    def knows(self, path: Path) -> bool:
        """Was the file's writer ever asked for?"""
        return path in self._known

    def of(self, path: Path) -> Holder:
        """What is known about the writer of a file."""
        return self._known.setdefault(path, Holder())

    def remember(self, path: Path, now: float, *, writer: bool | None) -> None:
        """Go on from what was known of the writer before a restart of this program."""
        if writer is not None:
            gone = None if writer else now - GONE_SECONDS
            self._known[path] = Holder(seen=CONFIRMATIONS, gone_since=gone)

    def forget(self, path: Path) -> None:
        """The file is followed no more."""
        self._known.pop(path, None)

    def look(self, paths: Iterable[Path], now: float) -> None:
        """Look at the writers of these files; ``now`` in seconds of a monotonic clock."""
        lost = [path for path in paths if not self._still_held(path)]
        due = [path for path in lost if self._due(self.of(path), now)]
        links = self._search(due) if due else {}
        for path in lost:
            self._note(self.of(path), links.get(path), now)
        for path in due:
            self.of(path).searched = now

    def _due(self, holder: Holder, now: float) -> bool:
        just_lost = holder.link is not None
        return just_lost or now - holder.searched >= SEARCH_SECONDS

    def _still_held(self, path: Path) -> bool:
        holder = self.of(path)
        if holder.link is None or not _holds(holder.link, path):
            return False
        holder.seen += 1
        return True

    def _note(self, holder: Holder, link: Path | None, now: float) -> None:
        holder.link = link
        if link is not None:
            holder.seen, holder.gone_since = holder.seen + 1, None
            holder.process = link.parent.parent.name
        elif not holder.confirmed:
            holder.seen = 0
        elif holder.gone_since is None:
            holder.gone_since = now

    def _search(self, paths: Iterable[Path]) -> dict[Path, Path]:
        """The open file of some process for each path that one writes to."""
        wanted = {os.path.realpath(path): path for path in paths}
        found: dict[Path, Path] = {}
        for link in self._open_files():
            path = wanted.get(_target(link))
            if path is not None and _writes(link):
                found[path] = link
        return found

    def _open_files(self) -> Iterator[Path]:
        for process in _entries(self.proc):
            if process.name.isdigit() and process.name != str(os.getpid()):
                yield from _entries(process / "fd")


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it cannot be read, or is gone."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _holds(link: Path, path: Path) -> bool:
    """Does the open file lead to the one of this path? Asked each time: names are slower to compare."""
    try:
        return os.path.samestat(link.stat(), path.stat())
    except OSError:
        return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _writes(link: Path) -> bool:
    """Was the file opened for writing? A ``tail -f`` or an editor is no trainer."""
    try:
        info = (link.parent.parent / "fdinfo" / link.name).read_text()
    except OSError:
        return False
    flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY

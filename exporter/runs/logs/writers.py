"""Which process writes a log, as Linux's ``/proc`` shows it: it holds the log open, or is named by it.

PyTorch's writer of event files opens the file for each append, so that it is never seen. But it puts
host and process into the file's name.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exporter.runs.model.lifecycle import GONE_SECONDS

CONFIRMATIONS = 3
"""Looks in a row that must see a writer before its absence means anything: a program that opens,
appends and closes is seen now and then, but hardly three times in a row."""

_EVENTS = ".tfevents."
_PROCESS = re.compile(r"(\d+)\.\d+(?=\.|$)")
_FIELD = re.compile(r"^(\w+):\s*(.*)$", re.MULTILINE)
_BOOT = re.compile(r"^btime (\d+)$", re.MULTILINE)
_STARTED = 19
"""The start of a process among the fields of ``/proc/<id>/stat`` behind its name, in ticks since the boot."""
_THREADS = "task"
CLOCK_SLACK = 2.0
"""Seconds by which the times of files and processes may differ: both count whole seconds from the boot."""

SEARCH_SECONDS = 5.0
"""A look at every process of the machine costs; known holders are looked at each time."""


@dataclass(slots=True)
class Writer:
    """What is known about the writer of one file; ``process`` is the id of the last one that was seen.

    ``target`` is the path that the kernel showed for the open file ``link``.
    """

    seen: int = 0
    link: Path | None = None
    target: str = ""
    process: str | None = None
    began: str | None = None
    """When the process that the file names did, in ticks since the boot: later, its id may be another's."""
    gone_since: float | None = None
    searched: float = field(default=-SEARCH_SECONDS)

    @property
    def confirmed(self) -> bool:
        """A process kept the file open over several looks."""
        return self.seen >= CONFIRMATIONS

    @property
    def only_named(self) -> bool:
        """Is the writer known by the file's name alone? That it lives says nothing then: it may be done."""
        return self.link is not None and self.link.parent.name == _THREADS

    def present(self) -> bool | None:
        """Is a writer there? ``None`` when nothing can be said."""
        if not self.confirmed:
            return None
        return self.gone_since is None

    def grown(self, at: float) -> None:
        """The log grew then: if its writer had gone before, another one writes that cannot be seen."""
        if self.gone_since is not None and at > self.gone_since + SEARCH_SECONDS:
            self.seen, self.gone_since = 0, None


class Writers:
    """Looks for the writers of files. ``proc`` is where the process file system is mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.proc = proc
        self._known: dict[Path, Writer] = {}

    def knows(self, path: Path) -> bool:
        """Was the file's writer ever asked for?"""
        return path in self._known

    def of(self, path: Path) -> Writer:
        """What is known about the writer of a file."""
        holder = self._known.get(path)
        if holder is None:
            holder = self._known[path] = Writer()
        return holder

    def remember(self, path: Path, now: float, *, writer: bool | None) -> None:
        """Go on from what was known of the writer before a restart of this program."""
        if writer is not None:
            gone = None if writer else now - GONE_SECONDS
            self._known[path] = Writer(seen=CONFIRMATIONS, gone_since=gone)

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

    def _due(self, holder: Writer, now: float) -> bool:
        just_lost = holder.link is not None
        return just_lost or now - holder.searched >= SEARCH_SECONDS

    def _still_held(self, path: Path) -> bool:
        holder = self.of(path)
        if holder.link is None or not (_lives(holder) if holder.only_named else _holds(holder, path)):
            return False
        holder.seen += 1
        return True

    def _note(self, holder: Writer, link: Path | None, now: float) -> None:
        holder.link = link
        if link is not None:
            holder.seen, holder.gone_since = holder.seen + 1, None
            holder.process = link.parent.parent.name
            holder.target = _target(link)
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
        named = {path: self._named(path) for path in paths if path not in found}
        return found | {path: link for path, link in named.items() if link}

    def _named(self, path: Path) -> Path | None:
        """The main thread of the process that an event file names, if that runs here and is no other one.

        It began before the file, belongs to the file's owner, and has the same id in its own eyes: a
        container may have the name of its host, and processes of its own.
        """
        began, _, writer = path.name.partition(_EVENTS)[2].partition(".")
        host, _, process = writer.partition(f"{socket.gethostname()}.")
        number = _PROCESS.match(process)
        if host or not (number and began.isdecimal()):
            return None
        folder = self.proc / number[1]
        ticks = _ticks(folder)
        try:
            status = dict(_FIELD.findall((folder / "status").read_text()))
            boot = _BOOT.search((self.proc / "stat").read_text())
            own = int(status["Uid"].split()[1]) == path.stat().st_uid and (folder / "cmdline").read_bytes()
        except (OSError, KeyError):
            return None
        if not (ticks and boot and own) or status.get("NSpid", folder.name).split()[-1] != folder.name:
            return None
        if int(boot[1]) + int(ticks) / os.sysconf("SC_CLK_TCK") > int(began) + CLOCK_SLACK:
            return None
        self.of(path).began = ticks
        return folder / _THREADS / number[1]

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


def _holds(holder: Writer, path: Path) -> bool:
    """Does the open file lead to the one of this path?

    Its number may stand for a file on a mount that hangs by now, so its name is asked for first: that alone
    touches no file. A log that was renamed is searched for again.
    """
    if holder.link is None or _target(holder.link) != holder.target:
        return False
    try:
        return os.path.samestat(holder.link.stat(), path.stat())
    except OSError:
        return False


def _lives(holder: Writer) -> bool:
    """Is the process that the file names still there, and the same one?"""
    return holder.link is not None and _ticks(holder.link.parent.parent) == holder.began


def _ticks(process: Path) -> str | None:
    """When a process began, in ticks since the boot; ``None`` if it is gone, or a zombie."""
    try:
        stat = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat[0] in "ZX" else stat[_STARTED]


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

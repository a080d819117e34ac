"""Which process writes a log: it has the log open, or the log's name holds its id.

PyTorch's writer of event files opens the file for each append, so that it is never seen. But it puts
host and process into the file's name.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from exporter.runs.model.lifecycle import GONE_SECONDS
from exporter.runs.processes import proc as files

CONFIRMATIONS = 3
"""Looks in a row that must see a writer before its absence means anything: a program that opens,
appends and closes is seen now and then, but hardly three times in a row."""

_EVENTS = ".tfevents."
_PROCESS = re.compile(r"(\d+)\.\d+(?=\.|$)")
_FIELD = re.compile(r"^(\w+):\s*(.*)$", re.MULTILINE)
_BOOT = re.compile(r"^btime (\d+)$", re.MULTILINE)
_DEAD = frozenset("ZX")
CLOCK_SLACK = 2.0
"""Seconds by which the times of files and processes may differ: both count whole seconds from the boot."""

SEARCH_SECONDS = 5.0
"""A look at every process of the machine costs; known writers are looked at each time."""


class OpenFile(NamedTuple):
    """By what a writer is known: its id, and the number and target of its open file.

    Where the file's name alone holds its id, ``number`` is empty, and ``began`` its start in ticks since the
    boot: later, its id may be another's.
    """

    process: str
    number: str = ""
    target: str = ""
    began: int = 0


@dataclass(slots=True)
class Writer:
    """What is known about the writer of one file; ``process`` is the id of the last one that was seen."""

    seen: int = 0
    open_file: OpenFile | None = None
    process: str | None = None
    gone_since: float | None = None
    searched: float = field(default=-SEARCH_SECONDS)

    @property
    def confirmed(self) -> bool:
        """Whether a process kept the file open over several looks."""
        return self.seen >= CONFIRMATIONS

    @property
    def only_named(self) -> bool:
        """Whether it is known by the file's name alone; then its life says nothing about the run."""
        return self.open_file is not None and not self.open_file.number

    def present(self) -> bool | None:
        """Whether there is a writer; ``None`` if unknown."""
        return self.gone_since is None if self.confirmed else None

    def grown(self, at: float) -> None:
        """Note that the log grew: if its writer had ended before, an invisible one is writing."""
        if self.gone_since is not None and at > self.gone_since + SEARCH_SECONDS:
            self.seen, self.gone_since = 0, None


class Writers:
    """Looks for the writers of files. ``proc`` is where the process file system is mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.proc = proc
        self._root = str(proc)
        self._known: dict[Path, Writer] = {}

    def knows(self, path: Path) -> bool:
        """Whether the file's writer was ever asked for."""
        return path in self._known

    def of(self, path: Path) -> Writer:
        """What is known about the writer of a file."""
        writer = self._known.get(path)
        if writer is None:
            writer = self._known[path] = Writer()
        return writer

    def remember(self, path: Path, now: float, *, writer: bool | None) -> None:
        """Go on from what was known of the writer before a restart of this program."""
        if writer is not None:
            gone = None if writer else now - GONE_SECONDS
            self._known[path] = Writer(seen=CONFIRMATIONS, gone_since=gone)

    def forget(self, path: Path) -> None:
        """Forget a file that is followed no more."""
        self._known.pop(path, None)

    def look(self, paths: Iterable[Path], now: float) -> None:
        """Look at the writers of these files; ``now`` in seconds of a monotonic clock."""
        lost: list[tuple[Path, Writer]] = []
        for path in paths:
            writer = self.of(path)
            if writer.open_file is not None and self._holds(writer.open_file, path):
                writer.seen += 1
            else:
                lost.append((path, writer))
        due = [
            path
            for path, writer in lost
            if writer.open_file is not None or now - writer.searched >= SEARCH_SECONDS
        ]
        found = self._search(due) if due else {}
        for path in due:
            self.of(path).searched = now
        for path, writer in lost:
            writer.open_file = found.get(path)
            if writer.open_file is not None:
                writer.seen, writer.gone_since = writer.seen + 1, None
                writer.process = writer.open_file.process
            elif not writer.confirmed:
                writer.seen = 0
            elif writer.gone_since is None:
                writer.gone_since = now

    def _holds(self, known: OpenFile, path: Path) -> bool:
        """Whether the process still lives and has the file of this path open.

        A number may stand for a file on a mount that hangs by now, so its target is asked for first: that
        alone touches no file. A log that was renamed is searched for again.
        """
        if not known.number:
            return self._began(known.process) == known.began
        if files.open_file(self._root, known.process, known.number) != known.target:
            return False
        try:
            held = os.stat(f"{self._root}/{known.process}/fd/{known.number}")  # noqa: PTH116  (each second)
            return os.path.samestat(held, path.stat())
        except OSError:
            return False

    def _search(self, paths: Sequence[Path]) -> dict[Path, OpenFile]:
        """Find the process that writes to each path."""
        wanted = {os.path.realpath(path): path for path in paths}
        found: dict[Path, OpenFile] = {}
        try:
            processes = files.pids(self._root)
        except OSError:
            processes = []
        own = str(os.getpid())
        for pid in processes:
            if pid == own:
                continue
            for number, target in files.open_files(self._root, pid):
                path = wanted.get(target)
                if path is not None and self._writes(pid, number):
                    found[path] = OpenFile(pid, number, target)
        named = {path: self._named(path) for path in paths if path not in found}
        return found | {path: writer for path, writer in named.items() if writer}

    def _writes(self, pid: str, number: str) -> bool:
        """Whether the file was opened for writing: a ``tail -f`` or an editor is not a trainer."""
        try:
            info = (self.proc / pid / "fdinfo" / number).read_text()
        except OSError:
            return False
        flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY

    def _began(self, pid: str) -> int | None:
        """When a living process began, in ticks since the boot."""
        found = files.process(self._root, pid)
        return found.began if found and found.state not in _DEAD else None

    def _named(self, path: Path) -> OpenFile | None:
        """The process that an event file names, if it runs here and its id was not given to another since.

        It began before the file, belongs to the file's owner, and has the same id in its own eyes: a
        container may have the name of its host, and processes of its own.
        """
        began, _, writer = path.name.partition(_EVENTS)[2].partition(".")
        host, _, process = writer.partition(f"{socket.gethostname()}.")
        number = _PROCESS.match(process)
        if host or not (number and began.isdecimal()):
            return None
        pid = str(number[1])
        ticks = self._began(pid)
        try:
            status = dict(_FIELD.findall((self.proc / pid / "status").read_text()))
            boot = _BOOT.search((self.proc / "stat").read_text())
            own = int(status["Uid"].split()[1]) == path.stat().st_uid and files.command(self._root, pid)
        except (OSError, KeyError):
            return None
        if not (ticks and boot and own) or status.get("NSpid", pid).split()[-1] != pid:
            return None
        if int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK") > int(began) + CLOCK_SLACK:
            return None
        return OpenFile(pid, began=ticks)

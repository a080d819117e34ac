"""Facts about processes, by Linux' process file system: who writes a log, and which of a run's use GPUs.

That file system has a folder for each process, named by its id.

A log's writer has it open, or the log's name holds its id: PyTorch's writer of event files opens the file for
each append, so that it is never seen. But it puts host and process into the file's name.

An open device file does not say that its GPU is used: a process that reads NVML, as loggers inside trainers
do, opens those of all GPUs. So the processes are served, and Prometheus asks the GPU exporter for the GPUs
whose memory they hold.
"""

from __future__ import annotations

import os
import re
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from exporter.process import pid_namespace
from exporter.runs.model.ends import GONE_SECONDS, Place


class Process(NamedTuple):
    """A process: its id, name, state, parent, group and session, and its start in ticks since the boot."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    began: int


def process_of(proc: str, pid: int | str) -> Process | None:
    """The data of a process; ``None`` if it has ended."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123  (asked of each process)
            before, _, after = file.read().decode(errors="replace").rpartition(")")
        state, parent, group, session, *fields = after.split()
    except (OSError, ValueError):
        return None
    name = before.partition("(")[2]
    return Process(int(pid), name, state, int(parent), int(group), int(session), int(fields[15]))


def pids(proc: str) -> list[str]:
    """The ids of all processes. Raises OSError: the process file system cannot be read."""
    return [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208  (a path for each would cost)


def open_files(proc: str, pid: int | str) -> Iterator[tuple[str, str]]:
    """The number and the target of each open file; none for an ended or another user's process."""
    folder = f"{proc}/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for number in numbers:
        target = open_file(proc, pid, number)
        if target:
            yield number, target


def open_file(proc: str, pid: int | str, number: str) -> str:
    """The target of an open file, without touching that; empty if it is closed."""
    try:
        return os.readlink(f"{proc}/{pid}/fd/{number}")  # noqa: PTH115
    except OSError:
        return ""


def command(proc: str, pid: int | str) -> bytes:
    """The command line; empty for a process that has ended."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


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
SEARCH_SECONDS = 5.0  # A look at every process of the machine costs; known writers are looked at each time


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
        """Whether it lives and has this file open; asks for the link first, as the mount may hang by now."""
        if not known.number:
            return self._began(known.process) == known.began
        if open_file(self._root, known.process, known.number) != known.target:
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
            processes = pids(self._root)
        except OSError:
            processes = []
        own = str(os.getpid())
        for pid in processes:
            if pid == own:
                continue
            for number, target in open_files(self._root, pid):
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
        found = process_of(self._root, pid)
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
            own = int(status["Uid"].split()[1]) == path.stat().st_uid and command(self._root, pid)
        except (OSError, KeyError):
            return None
        if not (ticks and boot and own) or status.get("NSpid", pid).split()[-1] != pid:
            return None
        if int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK") > int(began) + CLOCK_SLACK:
            return None
        return OpenFile(pid, began=ticks)


MOST_PROCESSES = 64  # of a run: some eight for each GPU of a machine. Those that began last are left out.
_DEVICE = re.compile(r"/dev/nvidia[0-9]+$")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)$", re.MULTILINE)
_OUTSIDE = 0  # the process group of every process whose group's leader is outside of this PID namespace
_INIT = 1  # the parent of whatever its own parent left behind
_RAYLET = "raylet"
_RAY_DRIVER = "/python-core-driver-"
"""Part of the name of the log that Ray's library keeps open in the process that called ``ray.init``."""


class RunGPUs(NamedTuple):
    """A run's ``processes`` that have a GPU open, in PID ``namespace``; UUIDs of the ``node``'s GPUs."""

    processes: tuple[int, ...] = ()
    namespace: str = ""
    node: tuple[str, ...] = ()


class GPUProcesses:
    """Looks for the processes of runs. ``proc`` is where the process file system is mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._root = str(proc)
        self._processes: dict[int, Process] = {}
        self._children: Mapping[int, list[Process]] = {}
        self._users: dict[int, int] = {}

    def look(self, writers: Mapping[Place, Iterable[str]]) -> dict[Place, RunGPUs]:
        """Return the GPUs of each run, by its ``writers``; nothing where NVIDIA's driver is not loaded."""
        with suppress(OSError):  # of a process file system that cannot be read, nothing is known either
            if (self._proc / "driver/nvidia").is_dir():
                self._read_processes()
                return self._gpus(writers)
        return {}

    def members(self, writers: Mapping[Place, Iterable[str]]) -> Iterator[tuple[Process, Place]]:
        """Yield each process of a run, whether or not it uses a GPU, by the ids of the writers.

        Raises OSError.
        """
        self._read_processes()
        return self._assigned(writers)

    def _read_processes(self) -> None:
        known = (process_of(self._root, pid) for pid in pids(self._root))
        self._processes = {process.pid: process for process in known if process}
        children: defaultdict[int, list[Process]] = defaultdict(list)
        for process in self._processes.values():
            children[process.parent].append(process)
        self._children = children

    def _gpus(self, writers: Mapping[Place, Iterable[str]]) -> dict[Place, RunGPUs]:
        used: defaultdict[Place, list[Process]] = defaultdict(list)
        for process, run in self._assigned(writers):
            if self._users.get(process.pid) == process.began or any(
                _DEVICE.search(target) for _, target in open_files(self._root, process.pid)
            ):
                used[run].append(process)
        self._users = {process.pid: process.began for found in used.values() for process in found}
        node: list[str] = []
        for file in sorted(self._proc.glob("driver/nvidia/gpus/*/information")):
            with suppress(OSError):
                node += _UUID.findall(file.read_text(errors="replace"))
        namespace = pid_namespace(self._root)
        gpus: dict[Place, RunGPUs] = {}
        for run in writers:
            first = sorted(used[run], key=lambda process: (process.began, process.pid))[:MOST_PROCESSES]
            processes = sorted(process.pid for process in first) if namespace else ()
            gpus[run] = RunGPUs(tuple(processes), namespace, tuple(node))
        return gpus

    def _assigned(self, writers: Mapping[Place, Iterable[str]]) -> Iterator[tuple[Process, Place]]:
        """Yield each process below a run's writer or launcher or in their groups, if of one run only."""
        members: defaultdict[int, set[Place]] = defaultdict(set)
        groups: defaultdict[int, set[Place]] = defaultdict(set)
        for run, pids in writers.items():
            for process in (each for pid in pids for each in self._launch(int(pid))):
                members[process.pid].add(run)
                groups[process.group].add(run)
        groups.pop(_OUTSIDE, None)
        if not members:
            return
        for process in self._processes.values():
            line = list(self._with_ancestors(process))
            found = next(filter(None, (members.get(each.pid) for each in line)), None) or next(
                filter(None, (groups.get(each.group) for each in line)), None
            )
            if found and len(found) == 1:
                yield process, next(iter(found))

    def _launch(self, pid: int) -> Iterator[Process]:
        """Yield a writer, and the processes above it that were started for nothing but its run."""
        process = self._processes.get(pid)
        while process:
            yield process
            parent = self._parent(process)
            process = parent if parent and self._is_launcher(parent, process) else None

    def _with_ancestors(self, process: Process | None) -> Iterator[Process]:
        while process:
            yield process
            process = self._parent(process)

    def _parent(self, process: Process) -> Process | None:
        """Return its parent. One that began later was given the id of a parent that had ended meanwhile."""
        parent = self._processes.get(process.parent)
        return parent if parent and (parent.began, parent.pid) < (process.began, process.pid) else None

    def _is_launcher(self, parent: Process, child: Process) -> bool:
        """Return whether a parent belongs to the run of its child.

        A script and what it calls are one process group. A launcher of ranks (torchrun, mpirun) starts one
        command several times, each in a group or session of its own; so may a person, but in a shell, which
        leads their session. Ray's raylet is a run's own if the run's ``ray.init`` started it; the workers of
        one that was there before may work for any run.
        """
        if parent.name == _RAYLET:
            return any(_RAY_DRIVER in target for _, target in open_files(self._root, parent.parent))
        if parent.group == child.group != _OUTSIDE:
            return True
        if parent.pid in (_INIT, child.session):
            return False
        words = command(self._root, child.pid)
        siblings = (each for each in self._children[parent.pid] if each.pid != child.pid)
        return bool(words) and any(command(self._root, each.pid) == words for each in siblings)

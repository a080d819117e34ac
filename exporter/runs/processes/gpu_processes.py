"""Which processes of a run have a GPU open, and which GPUs its machine has.

An open device file does not say that its GPU is used: a process that reads NVML, as loggers inside trainers
do, opens those of all GPUs. So the processes are served, and Prometheus asks the GPU exporter for the GPUs
whose memory they hold.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exporter.process import pid_namespace
from exporter.runs.model.run_source import Place
from exporter.runs.processes import proc as files
from exporter.runs.processes.proc import Process

MOST_PROCESSES = 64
"""Of a run: some eight for each GPU of a machine. Those that began last are left out."""

_DEVICE = re.compile(r"/dev/nvidia[0-9]+$")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)$", re.MULTILINE)
_OUTSIDE = 0
"""The process group of every process whose group's leader is outside of this PID namespace."""
_INIT = 1
"""The parent of whatever its own parent left behind."""
_RAYLET = "raylet"
_RAY_DRIVER = "/python-core-driver-"
"""Part of the name of the log that Ray's library keeps open in the process that called ``ray.init``."""


class RunGPUs(NamedTuple):
    """What is known of a run's GPUs.

    Attributes:
        processes: The ids of its processes that have a GPU open, in the exporter's PID namespace.
        namespace: The name of that namespace.
        node: The UUIDs of the GPUs of this machine.
    """

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
        """Return what is known of the GPUs of each run; nothing where NVIDIA's driver is not loaded.

        Args:
            writers: The ids of the processes that write the logs of each run, as far as they are seen.
        """
        with suppress(OSError):  # of a process file system that cannot be read, nothing is known either
            if (self._proc / "driver/nvidia").is_dir():
                self._read_processes()
                return self._gpus(writers)
        return {}

    def members(self, writers: Mapping[Place, Iterable[str]]) -> Iterator[tuple[Process, Place]]:
        """Yield each process of a run, whether or not it uses a GPU.

        Args:
            writers: As of ``look``.

        Raises:
            OSError: The process file system cannot be read.
        """
        self._read_processes()
        return self._assigned(writers)

    def _read_processes(self) -> None:
        known = (files.process(self._root, pid) for pid in files.pids(self._root))
        self._processes = {process.pid: process for process in known if process}
        children: defaultdict[int, list[Process]] = defaultdict(list)
        for process in self._processes.values():
            children[process.parent].append(process)
        self._children = children

    def _gpus(self, writers: Mapping[Place, Iterable[str]]) -> dict[Place, RunGPUs]:
        used: defaultdict[Place, list[Process]] = defaultdict(list)
        for process, run in self._assigned(writers):
            if self._users.get(process.pid) == process.began or any(
                _DEVICE.search(target) for _, target in files.open_files(self._root, process.pid)
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
        """Yield each process of a run: it descends from its writer or launcher, or is in a group of theirs.

        What two runs have in common is neither's.
        """
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
            return any(_RAY_DRIVER in target for _, target in files.open_files(self._root, parent.parent))
        if parent.group == child.group != _OUTSIDE:
            return True
        if parent.pid in (_INIT, child.session):
            return False
        command = files.command(self._root, child.pid)
        siblings = (each for each in self._children[parent.pid] if each.pid != child.pid)
        return bool(command) and any(files.command(self._root, each.pid) == command for each in siblings)

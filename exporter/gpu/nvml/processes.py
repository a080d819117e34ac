"""The processes that use a GPU."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from exporter.gpu.backend import Extras, Failure, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.library import Call, Found, either, parts
from exporter.gpu.nvml.values import DriverVersion
from exporter.gpu.nvml.windows import Mark
from exporter.process import pid_namespace


class Proc:
    """``root`` is the host's ``/proc``, which may be mounted elsewhere."""

    def __init__(self, root: str) -> None:
        self._root, self._ours = root, False
        with suppress(OSError):
            self._ours = os.readlink(f"{root}/self") == str(os.getpid())  # noqa: PTH115  (pathlib weighs 1 MB)

    def identity(self, pid: int) -> dict[str, str]:
        """Return a process's short name, and the first 12 digits of the container it runs in.

        Both are empty for a process that ended, or that cannot be distinguished from another. Drivers give
        the number that a process has for who asks (``osFindNsPid`` in NVIDIA's open kernel modules); old
        ones gave the host's. In a container with numbers of its own a host's ``/proc`` is right about a
        number only if no process here has it.
        """
        if not self._ours and os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
            return {"name": "", "container": ""}
        texts = {"comm": "", "cgroup": ""}
        for name in texts:
            with suppress(OSError), open(f"{self._root}/{pid}/{name}", "rb") as file:  # noqa: PTH123
                texts[name] = file.read().decode(errors="replace")
        # Docker, podman, containerd and CRI-O name a cgroup after the container, some with words before it.
        pattern = r"[/:-]([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)"
        found = re.search(pattern, texts["cgroup"], re.MULTILINE)
        return {"name": texts["comm"].removesuffix("\n"), "container": found[1] if found else ""}


_TYPES = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
"""NVML's words for how a process uses a GPU."""

_WIDE = ((535,), (535, 104))
"""The drivers from and to which the newest call fills structures that no wheel knows."""

_TRIES = 3
"""A list that grew between the question for its length and that for itself is asked for again."""

_OTHER = {"pid": "", "pid_namespace": "", "name": "other", "container": ""}
"""The labels of all processes together that are not named."""


class Processes:
    """The processes of one GPU; the ``most`` that hold most of its memory are named."""

    def __init__(self, most: int, proc: Proc, version: str) -> None:
        self._most = most
        self._proc = proc
        self._namespace = pid_namespace()  # the driver gives the ids that processes have for this one
        self._version = version
        self._pids: set[int] = set()
        self._memory: Counter[int] = Counter()
        self._named: dict[int, Mapping[str, str]] = {}
        self._mark = Mark()

    def forget(self) -> None:
        """Reset."""
        self._mark.forget()

    def read(self, handle: Any) -> Iterator[Found]:
        """How many there are, and the memory they hold, as far as the driver reports it."""
        self._pids, self._memory = set(), Counter()
        probes = [
            ("gpu_processes", {"type": word}, partial(self._count, name)) for word, name in _TYPES.items()
        ]
        yield from parts(handle, "GetRunningProcesses", probes)
        ranked = sorted(self._pids, key=lambda pid: (-self._memory[pid], pid))
        self._named = {
            pid: {"pid": str(pid), "pid_namespace": self._namespace, **self._proc.identity(pid)}
            for pid in ranked[: self._most]
        }
        yield from self._readings("gpu_process_memory_bytes", self._memory)

    def _count(self, name: str, handle: Any) -> int:
        """A process may use several instances of a GPU, and one in several ways; some are listed twice."""
        found = _listed(handle, f"Get{name}RunningProcesses{self._version}")
        instances = {
            (each.pid, each.gpuInstanceId, each.computeInstanceId): each.usedGpuMemory
            for each in found
            if each.usedGpuMemory is not None
        }
        held: Counter[int] = Counter()
        for (pid, *_), memory in instances.items():
            held[pid] += memory
        for pid, memory in held.items():
            self._memory[pid] = max(memory, self._memory[pid])
        pids = {process.pid for process in found}
        self._pids |= pids
        return len(pids)

    def utilization(self, handle: Any) -> Iterator[Found]:
        """What those did that were listed last: each by its newest sample since the last reading."""
        new = self._mark.new(lambda since: _samples(handle, since))
        percents = {sample.pid: sample.smUtil for sample in new if sample.pid in self._pids}
        shares = {pid: percent / 100 for pid, percent in percents.items() if percent <= 100}
        yield from self._readings("gpu_process_sm_utilization_ratio", shares)
        if len(shares) < len(percents):
            yield Failure("GetProcessUtilization", "garbage")

    def _readings(self, metric: str, values: Mapping[int, float]) -> Iterator[Reading]:
        """A reading for each process that is named, and the sum of the others."""
        if not self._most:
            return
        for pid, labels in self._named.items():
            if pid in values:
                yield Reading(metric, values[pid], labels)
        if others := [value for pid, value in values.items() if pid not in self._named]:
            yield Reading(metric, sum(others), _OTHER)


def _listed(handle: Any, call: str, *arguments: Any, tries: int = _TRIES) -> list[Any]:
    """What a call lists, which may be nothing. Raises ``library.Error``."""
    try:
        return list(library.ask(handle, call, *arguments))
    except library.Error as error:
        if error.value in (library.OK, library.NOT_FOUND):  # wheels take a length of 0 for an error
            return []
        if error.value != library.INSUFFICIENT_SIZE or tries == 1:
            raise
    return _listed(handle, call, *arguments, tries=tries - 1)


def _samples(handle: Any, since: int) -> list[tuple[int, Any]]:
    """Blackwell only has the first call, drivers before 550 only the second."""
    found = either(
        lambda handle: _listed(handle, "GetProcessesUtilizationInfo", since),
        lambda handle: _listed(handle, "GetProcessUtilization", since),
    )(handle)
    return [(sample.timeStamp, sample) for sample in found]


def calls(extras: Extras, driver: DriverVersion) -> tuple[Call, ...]:
    """They remember which processes were there."""
    version = "_v2" if _WIDE[0] <= driver < _WIDE[1] else ""
    processes = Processes(extras.processes, Proc(extras.proc), version)
    count = Call("GetRunningProcesses", Tier.SLOW, processes.read)
    if not extras.processes:
        return (count,)
    return (count, Call("GetProcessUtilization", Tier.SLOW, processes.utilization, forget=processes.forget))

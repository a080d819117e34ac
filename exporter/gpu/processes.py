"""The processes that use a GPU."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from exporter.gpu import library
from exporter.gpu.backend import Call, Problem, ReadError, Reading, Settings, Tier, UnsupportedError
from exporter.gpu.library import Mark
from exporter.gpu.table import driver_version
from exporter.process import pid_namespace

_CONTAINER = re.compile(r"[/:-]([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)", re.MULTILINE)
"""Docker, podman, containerd and CRI-O name a cgroup after the container, some with words before it."""


def identity(proc: str, pid: int) -> dict[str, str]:
    """A process's short name, and the first 12 digits of its container; ``proc`` is the host's ``/proc``.

    Both are empty for a process that ended, or that cannot be distinguished from another. Drivers give the
    number that a process has for who asks (``osFindNsPid`` in NVIDIA's open kernel modules); old ones gave
    the host's. In a container with numbers of its own a host's ``/proc`` is right about a number only if no
    process here has it.
    """
    texts, ours = {"comm": "", "cgroup": ""}, False
    with suppress(OSError):
        ours = os.readlink(f"{proc}/self") == str(os.getpid())  # noqa: PTH115  (pathlib weighs 1 MB)
    if not ours and os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
        return {"name": "", "container": ""}
    for name in texts:
        with suppress(OSError), open(f"{proc}/{pid}/{name}", "rb") as file:  # noqa: PTH123
            texts[name] = file.read().decode(errors="replace")
    found = _CONTAINER.search(texts["cgroup"])
    return {"name": texts["comm"].removesuffix("\n"), "container": found[1] if found else ""}


_TYPES = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
"""NVML's words for how a process uses a GPU."""

_OTHER = {"pid": "", "pid_namespace": "", "name": "other", "container": ""}
"""The labels of all processes together that are not named."""


class Processes:
    """The processes of one GPU; those that hold most of its memory are named, as many as are wanted."""

    def __init__(self, settings: Settings, driver: str) -> None:
        self._most, self._proc = settings.processes, settings.proc
        self._namespace = pid_namespace()  # the driver gives the ids that processes have for this one
        # the newest call of these drivers fills structures that no wheel knows
        self._version = "_v2" if (535,) <= driver_version(driver) < (535, 104) else ""
        self._pids: set[int] = set()
        self._named: dict[int, Mapping[str, str]] = {}
        self._mark = Mark()
        self.calls = [Call("GetRunningProcesses", Tier.SLOW, self._read)]
        if self._most:
            self.calls.append(Call("GetProcessUtilization", Tier.SLOW, self._utilization))

    def _read(self, handle: Any) -> Iterator[Reading | Problem]:
        """How many there are, and the memory they hold, as far as the driver reports it."""
        pids, memory, lacking = set[int](), Counter[int](), list[UnsupportedError]()
        for word, name in _TYPES.items():
            try:
                listed = _listed(handle, f"Get{name}RunningProcesses{self._version}")
            except UnsupportedError as problem:
                lacking.append(problem)
                yield Problem(f"GetRunningProcesses({word})", problem.code, lacking=True)
                continue
            # A process may use several instances of a GPU, and one in several ways; some are listed twice.
            instances = {
                (each.pid, each.gpuInstanceId, each.computeInstanceId): each.usedGpuMemory
                for each in listed
                if each.usedGpuMemory is not None
            }
            held: Counter[int] = Counter()
            for (pid, *_), size in instances.items():
                held[pid] += size
            memory.update({pid: max(0, size - memory[pid]) for pid, size in held.items()})
            found = {each.pid for each in listed}
            pids |= found
            yield Reading("gpu_processes", len(found), {"type": word})
        if len(lacking) == len(_TYPES):
            raise lacking[0]
        self._pids = pids
        self._named = {
            pid: {"pid": str(pid), "pid_namespace": self._namespace, **identity(self._proc, pid)}
            for pid in sorted(pids, key=lambda pid: (-memory[pid], pid))[: self._most]
        }
        yield from self._readings("gpu_process_memory_bytes", memory)

    def _utilization(self, handle: Any) -> Iterator[Reading | Problem]:
        """What those did that were listed last: each by its newest sample since the last reading."""
        since = self._mark.since()
        try:  # Blackwell only has the first call, drivers before 550 only the second
            samples = _listed(handle, "GetProcessesUtilizationInfo", since)
        except UnsupportedError:
            samples = _listed(handle, "GetProcessUtilization", since)
        new = self._mark.newer(samples)
        percents = {sample.pid: sample.smUtil for sample in new if sample.pid in self._pids}
        shares = {pid: percent / 100 for pid, percent in percents.items() if percent <= 100}
        yield from self._readings("gpu_process_sm_utilization_ratio", shares)
        if len(shares) < len(percents):
            yield Problem("GetProcessUtilization", "garbage", lacking=False)

    def _readings(self, metric: str, values: Mapping[int, float]) -> Iterator[Reading]:
        """A reading for each process that is named, and the sum of the others."""
        if not self._most:
            return
        for pid, labels in self._named.items():
            if pid in values:
                yield Reading(metric, values[pid], labels)
        if others := [value for pid, value in values.items() if pid not in self._named]:
            yield Reading(metric, sum(others), _OTHER)


def _listed(handle: Any, name: str, *arguments: Any, tries: int = 3) -> list[Any]:
    """What a call lists, which may be nothing. Raises ``DriverError``."""
    try:
        return list(library.call(f"Device{name}", handle, *arguments))
    except ReadError as problem:
        if problem.code in ("ok", "not_found"):  # wheels take a length of 0 for an error
            return []
        if problem.code != "insufficient_size" or tries == 1:
            raise
    return _listed(handle, name, *arguments, tries=tries - 1)  # it grew since its length was asked for

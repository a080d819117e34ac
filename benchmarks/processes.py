"""What a running process takes of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(child for name in children for child in family(int(name)))]


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def most_resident(pid: int) -> float:
    """The most resident memory that a process has had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def proportional(pid: int) -> float:
    """Memory of a process in MB, its share of what it shares with others."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def core_seconds(pid: int) -> float:
    """Processor time that a process and its children have used."""
    stats = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(pid)]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS


def shares(pids: Sequence[int], meanwhile: Callable[[], object]) -> list[float]:
    """Share of a core that each process and its children used in the meantime."""
    used, began = [core_seconds(pid) for pid in pids], time.perf_counter()
    meanwhile()
    passed = time.perf_counter() - began
    return [(core_seconds(pid) - before) / passed for pid, before in zip(pids, used, strict=True)]

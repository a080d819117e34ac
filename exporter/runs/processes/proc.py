"""The process file system of Linux: one folder for each process, named by its id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple


class Process(NamedTuple):
    """A process: its id, name, state, parent, group and session, and its start in ticks since the boot."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    began: int


def process(proc: str, pid: int | str) -> Process | None:
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
    """The ids of all processes.

    Raises:
        OSError: the process file system cannot be read.
    """
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

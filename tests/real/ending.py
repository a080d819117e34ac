"""Processes of tests that must not outlive them, with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from stepwatch.launch.keeper import descendants

Started = list["subprocess.Popen[Any]"]


def end(process: subprocess.Popen[Any], *others: int) -> None:
    """Kill a process, all below it and others, by their ids; read its pipes to the end."""
    for pid in (*descendants(process.pid), process.pid, *others):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def ended() -> Iterator[Started]:
    """A list of processes, for those that are started in the block: at its end what is left is killed."""
    started: Started = []
    try:
        yield started
    finally:
        for each in started:
            end(each)

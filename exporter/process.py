"""The process of a program of ours: how Ctrl-C ends it, and where its process ids are valid."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_CODE = 130


def end_on_interrupt() -> None:
    """Have Ctrl-C end this process on the spot, while there is nothing to clean up."""
    if _meant_for_us():
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))


def run(main: Callable[[], int]) -> NoReturn:
    """Run a program and end with its exit code; Ctrl-C raises KeyboardInterrupt, so that it can clean up."""
    if _meant_for_us():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_CODE)
    finally:
        end_on_interrupt()


def _meant_for_us() -> bool:
    # A shell has programs in the background ignore it.
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def pid_namespace(proc: str = "/proc") -> str:
    """Return the name of the caller's PID namespace, ``086fb401f216-4026531836``; empty where none is known.

    The number of the first namespace is the same on all machines, hence the id of the boot before it.

    Args:
        proc: Where the process file system is mounted.
    """
    try:
        with open(f"{proc}/sys/kernel/random/boot_id") as file:  # noqa: PTH123  (pathlib weighs 1 MB)
            boot = file.read().strip().replace("-", "")
        number = os.readlink(f"{proc}/self/ns/pid").strip("pid:[]")  # noqa: PTH115
    except OSError:
        return ""
    return f"{boot[:12]}-{number}"

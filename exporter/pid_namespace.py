"""Which process ids mean the same processes: those of one PID namespace, in one boot of one machine."""

from __future__ import annotations

import os


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

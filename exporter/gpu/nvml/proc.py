"""Who a process is, by the host's ``/proc``."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_CONTAINER = re.compile(r"[/:-]([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)", re.MULTILINE)
"""Docker, podman, containerd and CRI-O name a cgroup after the container, some with words before it."""


class Identity(NamedTuple):
    """A process's short name, and the first 12 digits of the container it runs in; empty if unknown."""

    name: str = ""
    container: str = ""


class Proc:
    """``root`` is the host's ``/proc``, which may be mounted elsewhere."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._ours = _target(f"{root}/self") == str(os.getpid())

    def identity(self, pid: int) -> Identity:
        """Empty for a process that ended, or that cannot be distinguished from another.

        Drivers give the number that a process has for who asks (``osFindNsPid`` in NVIDIA's open kernel
        modules); old ones gave the host's. In a container with numbers of its own a host's ``/proc``
        is right about a number only if no process here has it.
        """
        if not self._ours and os.path.exists(f"/proc/{pid}"):  # noqa: PTH110  (pathlib weighs 1 MB)
            return Identity()
        name, groups = _text(f"{self._root}/{pid}/comm"), _text(f"{self._root}/{pid}/cgroup")
        found = _CONTAINER.search(groups)
        return Identity(name.removesuffix("\n"), found[1] if found else "")


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""


def _text(path: str) -> str:
    """What a file says, as far as it is text."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read().decode(errors="replace")
    except OSError:
        return ""

"""How a trainer ended: exit code or signal, and whether the kernel had run out of memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_COUNTERS = {
    "cgroup2": ("memory.events", "/sys/fs/cgroup"),
    "cgroup": ("memory.oom_control", "/sys/fs/cgroup/memory"),
}


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt; ``status`` as `wait` returns it.

    Attributes:
        status: The trainer's wait status.
        oom_kills: Processes that the kernel killed for lack of memory meanwhile.
    """

    status: int
    oom_kills: int = 0

    @property
    def exit_code(self) -> int | None:
        """What it exited with; ``None`` if a signal ended it."""
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> int:
        """The signal that ended it; 0 if it exited."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def signal_name(self) -> str:
        """The name of that signal; empty if it exited."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def text(self) -> str:
        """Exit code or signal in words."""
        return self.signal_name or f"exit code {self.exit_code}"

    def fields(self) -> dict[str, object]:
        """What the launch record says of it."""
        return {"exit_code": self.exit_code, "signal": self.signal_name, "oom_kills": self.oom_kills}


def oom_kills() -> int:
    """Return how many processes of this process's cgroup the kernel has killed for lack of memory.

    Where that does not count, since it is the root of all, none: those of the whole machine say nothing of
    the trainer.
    """
    counted = map(_counter, _of_cgroup())
    return next((count for count in counted if count is not None), 0)


def _of_cgroup() -> Iterator[str]:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, below = line.split(":", 2)
            kind = "cgroup" if "memory" in controllers.split(",") else "" if controllers else "cgroup2"
            if kind:
                name, root = _COUNTERS[kind]
                # In a container the path is often the host's, and the files lie at the root.
                yield f"{root}{below.rstrip('/')}/{name}"
                yield f"{root}/{name}"


def _counter(path: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None

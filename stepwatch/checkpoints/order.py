"""Instructions of the wrapper to its watcher, and of the watcher to its keeper."""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Working folder of these processes: not the trainer's, whose modules might have our names."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Order:
    """What to watch, and how many checkpoints to keep.

    Attributes:
        log: The run's log.
        run: The run's name.
        folder: Where the trainer saves checkpoints; it need not be there yet.
        keep: How many of the best are kept; ``None`` for as many as config.yaml says.
        config: In place of the usual config.yaml; empty for that.
        ended: Whether the trainer has ended.
    """

    log: str
    run: str
    folder: str
    keep: int | None = None
    config: str = ""
    ended: bool = False


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process once the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # too late
        os.kill(os.getpid(), signal.SIGKILL)

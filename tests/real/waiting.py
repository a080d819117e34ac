"""Waits for what comes about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(fact: Callable[[], bool], timeout: float = 20) -> None:
    """Wait until something is so, no longer than so many seconds."""
    deadline = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)

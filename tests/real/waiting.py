"""Waits for what a program does: counted in its own work, not in seconds of a machine that may be busy."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from stepwatch.system import http_client

HANG_SECONDS = 600.0
"""Ends a wait for what never comes. Nothing that works takes so long, on however busy a machine."""
LIMIT = 60


@dataclass(frozen=True)
class Work:
    """What a program has done so far.

    Args:
        unit: What is counted, in the plural, such as "scrapes".
        count: How many so far; fewer than before once the program was started again. An OSError means that
            the program does not answer now.
    """

    unit: str
    count: Callable[[], float]


def counted(unit: str, page: str, metric: str, label: str = "") -> Work:
    """Return the work that a metric counts: the sum of its samples with this text in their labels."""

    def count() -> float:
        text = http_client.read(page)
        if text is None:
            raise ConnectionError(str(page))
        sample = re.compile(rf"^{metric}(?:{{(.*)}})? (\S+)$", re.MULTILINE)
        return sum(float(value) for labels, value in sample.findall(text) if label in labels)

    return Work(unit, count)


class _Meter:
    """How much work was done since it was made, over restarts of the program."""

    def __init__(self, work: Work) -> None:
        self.done = 0.0
        self._work = work
        self._last: float | None = None
        self.read()

    def read(self) -> float:
        with suppress(OSError):
            now = self._work.count()
            if self._last is not None:
                self.done += now - self._last if now >= self._last else now
            self._last = now
        return self.done


def eventually(
    fact: Callable[[], object],
    work: Work | None = None,
    limit: float = LIMIT,
    *,
    pause: float = 0.05,
    seen: Callable[[], object] = lambda: "nothing more is known",
) -> None:
    """Wait until something is so.

    Args:
        fact: What is waited for.
        work: Of the program that brings it about.
        limit: How much of this work it may take; without ``work`` only a hang ends the wait.
        pause: Seconds between two looks.
        seen: What the failure shows: the last that is known.

    Raises:
        AssertionError: So much work was done, or it hangs, and it is not so.
    """
    begun, meter = time.monotonic(), _Meter(work) if work else None
    while True:
        # Read before the look: what the last unit of work brought about is still seen.
        spent = meter.read() if meter else 0.0
        if fact():
            return
        if work and spent > limit:
            raise AssertionError(f"not within {limit:.0f} {work.unit}: {seen()}")
        if time.monotonic() - begun > HANG_SECONDS:
            done = f"{spent:.0f} {work.unit}" if work else "no work counted"
            raise AssertionError(f"not within {HANG_SECONDS:.0f} s ({done}): {seen()}")
        time.sleep(pause)


def let_pass(number: float, work: Work, *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Wait until so much more work is done: what did not happen by then does not happen."""
    meter = _Meter(work)

    def passed() -> bool:
        meanwhile()
        return meter.read() >= number

    eventually(passed, pause=0.2, seen=lambda: f"{meter.done:.0f} of {number:.0f} {work.unit}")


def in_time(took: float, seconds: float) -> bool:
    """Is this no longer than so many seconds of a machine that has nothing else to do?

    Where it is longer, the seconds count as many times over as this machine is slower than that now.
    """
    return took < seconds or took < seconds * slowness()


_slowness = (-math.inf, 1.0)
"""When it was measured last, and what it was."""
RECENT_SECONDS = 10.0


def recent_slowness() -> float:
    """As ``slowness``, at most some seconds old: a measurement takes as much as the start of a program."""
    measured, slow = _slowness
    return slow if time.monotonic() - measured < RECENT_SECONDS else slowness()


def slowness() -> float:
    """Return how many times longer than on a processor of its own a thread takes for its work now."""
    global _slowness  # noqa: PLW0603 -- the machine is one
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.1:
        pass
    now = time.monotonic()
    _slowness = (now, max(1.0, (now - begun) / 0.1))
    return _slowness[1]

"""Statistics held at the extreme that rules look for, so that no step falls between two scrapes."""

from __future__ import annotations

from collections import deque

from exporter.runs.contract import Hold


class Held:
    """The extreme of a statistic over its present value and the records of the last seconds.

    A monotonic queue: each time and value enters once and leaves once. Times in seconds, any
    monotonic clock.
    """

    __slots__ = ("_sign", "_window")

    def __init__(self, hold: Hold) -> None:
        self._sign = -1.0 if hold is Hold.LOW else 1.0
        self._window: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        """Take the statistic's value after a record that arrived now."""
        signed = self._sign * value
        while self._window and self._window[-1][1] <= signed:
            self._window.pop()
        self._window.append((now, signed))

    def value(self, oldest: float, present: float) -> float:
        """The extreme of ``present`` and all values that arrived at ``oldest`` or later."""
        while self._window and self._window[0][0] < oldest:
            self._window.popleft()
        if not self._window:
            return present
        return self._sign * max(self._window[0][1], self._sign * present)

    def expires(self, seconds: float) -> float:
        """When the value that rules now is older than ``seconds`` and the extreme may change."""
        return self._window[0][0] + seconds if self._window else float("inf")

"""Statistics held at the extreme that rules look for, so that no step falls between two scrapes."""

from __future__ import annotations

from exporter.runs.stats.catalogue import Hold


class Held:
    """The extreme of a statistic over its present value and the records of the last ``seconds``.

    A monotonic queue: each time and value enters once and leaves once. Times in seconds, any
    monotonic clock.
    """

    __slots__ = ("_seconds", "_sign", "_window")

    def __init__(self, hold: Hold, seconds: float) -> None:
        self._seconds = seconds
        self._sign = -1.0 if hold is Hold.LOW else 1.0
        # Seldom more than two or three: a deque of none weighs 600 bytes.
        self._window: list[tuple[float, float]] = []

    def add(self, now: float, value: float) -> None:
        """Take the statistic's value after a record that arrived now."""
        self._forget(now)
        signed = self._sign * value
        while self._window and self._window[-1][1] <= signed:
            self._window.pop()
        self._window.append((now, signed))

    def value(self, now: float, present: float) -> float:
        """The extreme of ``present`` and all values that arrived in the last seconds."""
        self._forget(now)
        if not self._window:
            return present
        return self._sign * max(self._window[0][1], self._sign * present)

    def expires(self) -> float:
        """When the value that rules now is too old and the extreme may change."""
        return self._window[0][0] + self._seconds if self._window else float("inf")

    def _forget(self, now: float) -> None:
        while self._window and self._window[0][0] + self._seconds < now:
            del self._window[0]

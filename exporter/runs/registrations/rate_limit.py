"""How many requests may come: so many at once, then so many a second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """Holds ``size`` requests when full, and gets back ``rate`` of them each second.

    ``left`` is what it held ``at`` that time, in seconds of the steady clock.
    """

    size: float
    rate: float
    left: float
    at: float

    def wait(self, now: float) -> float:
        """Seconds until there is one to take; 0 if there is."""
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        return max(0.0, (1 - self.left) / self.rate)

    @property
    def full(self) -> bool:
        """Was nothing taken of late?"""
        return self.left >= self.size


class Rate:
    """Limits of each client, and of all together.

    A client beyond its own takes nothing from the others. Twenty jobs that start at once behind one
    address stay below it: each registers three times or so, and never again.
    """

    EACH = (60.0, 1.0)
    ALL = (300.0, 10.0)

    def __init__(self) -> None:
        self._all = Bucket(*self.ALL, left=self.ALL[0], at=0.0)
        self._each: dict[str, Bucket] = {}

    def wait(self, client: str, now: float) -> float:
        """Take one request of a client; returns the seconds until it may come, 0 if it may now."""
        self._forget(now)
        own = self._each.get(client) or Bucket(*self.EACH, left=self.EACH[0], at=now)
        seconds = own.wait(now) or self._all.wait(now)
        if not seconds:
            own.left -= 1
            self._all.left -= 1
            self._each[client] = own
        return seconds

    def _forget(self, now: float) -> None:
        """Those who have their whole share again; the share of all bounds how many others there are."""
        for bucket in self._each.values():
            bucket.wait(now)
        self._each = {client: bucket for client, bucket in self._each.items() if not bucket.full}

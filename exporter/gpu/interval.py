"""How often the GPUs are read: each interval while someone looks, seldom while no one does."""

from __future__ import annotations

IDLE_INTERVAL_SECONDS = 15.0


class Pace:
    """In seconds: ``usual`` between two readings, ``patience`` without a look until they are seldom."""

    def __init__(self, usual: float, patience: float, now: float) -> None:
        self.usual = usual
        self.patience = patience
        self._looked = now

    def look(self, now: float) -> None:
        """Someone asks for the page. ``now`` of the steady clock."""
        self._looked = now

    def interval(self, now: float) -> float:
        """From one reading to the next. ``now`` of the steady clock."""
        idle = now - self._looked > self.patience
        return max(self.usual, IDLE_INTERVAL_SECONDS) if idle else self.usual

"""Notices when GPUs that could be read no longer can, in a way that only a new container may fix."""

from __future__ import annotations

from exporter.gpu.backend import OK
from exporter.gpu.contract import UNKNOWN

REASONS = ("version_mismatch", UNKNOWN, "lost")
"""The old driver's library is mounted still, or the devices were taken from the container."""


class Outage:
    """``patience`` in seconds; 0 for never.

    What could not be read from the start is no reason: then a restart was no fix, and the next would be
    none either.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._well = False
        self._since: float | None = None

    def lasts(self, reason: str, now: float) -> bool:
        """Is it time for a restart? ``reason`` why no GPU can be read, ``now`` of the steady clock."""
        self._well = self._well or reason == OK
        if not self._well or reason not in REASONS:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return 0 < self.patience <= now - self._since

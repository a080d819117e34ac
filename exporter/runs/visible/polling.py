"""What watches runs that are polled: one page or server, or pages that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from exporter.runs.logs.run_limit import PolledRunSet
from exporter.runs.model.health import Health, Polled
from exporter.runs.model.run import Run
from exporter.runs.visible.views import Signs


class Polling(Protocol):
    """Runs that are polled: what reports them is called ``name``, and its ``place`` is not a file."""

    name: str
    place: Path
    roster: PolledRunSet

    def start(self) -> None:
        """Begin to poll."""

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life of a run; ``now`` in seconds of the steady clock."""

    def polled(self) -> list[Polled]:
        """How the polls went so far."""

    def save(self, health: Health) -> None:
        """Keep what the next start could not ask for, if it changed since the last time."""

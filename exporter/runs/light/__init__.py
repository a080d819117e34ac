"""The light page: runs, curves and alerts for those without Grafana. No script, nothing from elsewhere."""

from __future__ import annotations

from typing import Protocol

from exporter.runs.overview.models import Firing, RunStory, RunSummary, Series, Unshown


class Story(Protocol):
    """What is known of the runs; asked in the server's thread, so it must wait for no disk or network."""

    @property
    def prometheus(self) -> str:
        """What keeps Prometheus from reporting alerts, in words; empty if nothing does."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps the stack from alerting, in words; empty if nothing does."""

    @property
    def unshown(self) -> Unshown:
        """What is not among the runs."""

    def runs(self) -> list[RunSummary]:
        """All that are shown."""

    def others(self) -> tuple[Firing, ...]:
        """The alerts that fire about no run."""

    def run(self, name: str) -> RunStory | None:
        """One of them; ``None`` if there is none of that name."""

    def series(self, name: str, signal: str) -> Series | None:
        """A signal of a run; ``None`` if there is no such run, or nothing is kept of the signal."""

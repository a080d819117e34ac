"""A polled target without a network: a test's subclass says what each poll finds."""

from __future__ import annotations

from exporter.runs.pages.source import Target
from exporter.runs.signals.record import Event


class FakeTarget(Target):
    """A trainer's page that reports nothing; ``polls`` counts how often it was asked."""

    source = "prometheus_page"

    def __init__(self) -> None:
        super().__init__("http://fake")
        self.polls = 0

    def read(self) -> list[Event]:
        self.polls += 1
        return self.found()

    def found(self) -> list[Event]:
        """What a poll finds; a fault may be raised instead."""
        return []

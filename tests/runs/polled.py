"""A polled target without a network: a test's subclass says what each poll finds."""

from __future__ import annotations

from exporter.runs.signals.record import Event


class FakeTarget:
    """A trainer's page that reports nothing; ``polls`` counts how often it was asked."""

    name = "fake"
    source = "prometheus_page"
    has_history = False
    is_trainer = True
    reported: frozenset[str] = frozenset()
    lacking: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.polls = 0

    def poll(self) -> list[Event]:
        self.polls += 1
        return self.found()

    def found(self) -> list[Event]:
        """What a poll finds; a fault may be raised instead."""
        return []

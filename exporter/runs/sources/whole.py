"""What formats have in common that hold nothing back."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.runs.signals.record import Event


class Whole:
    """A format whose records are read at once, or not at all: half a line is none."""

    def rest(self) -> Iterator[Event]:
        """Nothing waits for more."""
        return iter(())

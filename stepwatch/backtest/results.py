"""What came of a backtest, as people and programs get it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Alert:
    """An alert that would have fired: from one record to another (the first is 1), by step too.

    ``value`` and ``threshold`` are those of its first record, in the unit of the signal.
    """

    alert: str
    severity: str
    first_record: int
    last_record: int
    first_step: int
    last_step: int
    value: float | None
    threshold: float | None
    inhibited: bool


@dataclass(frozen=True)
class Judged:
    """A run, its signals that rules look at, and its alerts in the order in which they would have fired."""

    run: str
    files: tuple[str, ...]
    format: str
    records: int
    first_step: int | None
    last_step: int | None
    signals: tuple[str, ...]
    alerts: tuple[Alert, ...]

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Unjudged:
    """A file that could not be judged, and why."""

    run: str
    files: tuple[str, ...]
    error: str

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Results:
    """All that was asked for. ``left_out``: alerts that count the time of a clock, or ask other exporters."""

    runs: tuple[Judged | Unjudged, ...]
    left_out: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"runs": [run.document() for run in self.runs], "left_out": list(self.left_out)}

    def fired(self, *severities: str) -> bool:
        """Would an alert of these severities have fired for any run?"""
        judged = (run for run in self.runs if isinstance(run, Judged))
        return any(alert.severity in severities for run in judged for alert in run.alerts)

    @property
    def failed(self) -> bool:
        """Was there a file that could not be judged?"""
        return any(isinstance(run, Unjudged) for run in self.runs)

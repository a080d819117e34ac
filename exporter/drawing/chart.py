"""What a chart shows: curves over training steps, limits, and when alerts fired."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

from exporter.drawing.curve import Curve
from exporter.drawing.severity import rank


@dataclass(frozen=True)
class Band:
    """An alert fired from one step to another."""

    alert: str
    severity: str
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Chart:
    """A panel filled with a run from its ``first`` to its ``last`` step.

    ``unit`` is Grafana's name for it; ``low`` and ``high`` are where its axis ends, if that is fixed.
    """

    title: str
    description: str
    unit: str
    low: float | None
    high: float | None
    first: int
    last: int
    curves: tuple[Curve, ...]
    limits: tuple[Curve, ...]
    bands: tuple[Band, ...]


class Fired(Protocol):
    """An alert that began to fire at a step."""

    @property
    def alert(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def first_step(self) -> int: ...


Some = TypeVar("Some", bound=Fired)


def by_alert(fired: Iterable[Some]) -> list[tuple[Some, ...]]:
    """The times of each alert, the worst severity first, then the earliest."""

    def key(alert: Some) -> tuple[int, str, str]:
        return rank(alert.severity), alert.severity, alert.alert

    together = [tuple(times) for _, times in groupby(sorted(fired, key=key), key=key)]
    return sorted(together, key=lambda times: (key(times[0])[0], times[0].first_step))

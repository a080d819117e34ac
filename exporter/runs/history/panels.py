"""What is drawn of a run: the panels of the Training dashboard, as generate.py wrote them down.

{"panels": [{"title": ..., "description": ..., "unit": ..., "low": null, "high": null,
             "curves": [{"name": ..., "formula": ...}],
             "asked": [{"name": ..., "promql": ...}],
             "limits": [{"name": ..., "alert": ..., "severity": ..., "side": "low" or "high",
                         "signal": ..., "alone": ..., "formula": ...}]}],
 "about": {<alert>: [<signal>, ...]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import orjson

from exporter.runs.history.formula import Formula, checked, of_run
from exporter.runs.history.history import DRAWN
from exporter.runs.signals import SIGNALS

SIDES = ("low", "high")


@dataclass(frozen=True)
class Line:
    """A curve of a panel: its name, and what it shows."""

    name: str
    formula: Formula

    @property
    def signal(self) -> str | None:
        """The signal whose values it shows as they are, if it does that."""
        name = self.formula.removeprefix("rl_") if isinstance(self.formula, str) else ""
        return name if name in DRAWN else None

    def is_mean_of(self, signal: str) -> bool:
        """Does it show a statistic of the signal?"""
        return isinstance(self.formula, str) and f'{{signal="{signal}"' in self.formula


@dataclass(frozen=True)
class Asked:
    """A curve that only Prometheus knows, such as one of GPUs: one value at a time."""

    name: str
    promql: str


@dataclass(frozen=True)
class Limit:
    """A limit of an alert: the ``signal`` may not be beyond it on this ``side``.

    ``name`` is what the dashboard calls it, the alert's as a rule. Unless it stands ``alone`` the alert
    looks at something else as well, and says nothing where only this is passed.
    """

    name: str
    alert: str
    severity: str
    side: str
    signal: str
    alone: bool
    formula: Formula

    def is_passed(self, value: float, limit: float) -> bool:
        """Is the value beyond the limit?"""
        return value > limit if self.side == "high" else value < limit


@dataclass(frozen=True)
class Panel:
    """One panel: ``unit`` is Grafana's name for it, ``low`` and ``high`` are where its axis ends."""

    title: str
    description: str
    unit: str
    low: float | None
    high: float | None
    curves: tuple[Line, ...]
    asked: tuple[Asked, ...] = ()
    limits: tuple[Limit, ...] = ()

    @cached_property
    def signals(self) -> frozenset[str]:
        """What it shows."""
        return frozenset(line.signal for line in self.curves if line.signal)

    def of_run(self, run: str) -> Panel:
        """The panel with the limits that hold for one run."""
        own = ((limit, of_run(limit.formula, run)) for limit in self.limits)
        limits = (replace(limit, formula=formula) for limit, formula in own if formula is not None)
        return replace(self, limits=tuple(limits))


@dataclass(frozen=True)
class Panels:
    """All panels, and the signals that each alert looks at."""

    panels: tuple[Panel, ...]
    about: Mapping[str, frozenset[str]]

    def of(self, signal: str) -> Panel | None:
        """The panel that shows a signal."""
        return next((panel for panel in self.panels if signal in panel.signals), None)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """The curves that only Prometheus knows."""
        return tuple(asked for panel in self.panels for asked in panel.asked)

    def of_run(self, run: str) -> Panels:
        """The panels with the limits that hold for one run."""
        return replace(self, panels=tuple(panel.of_run(run) for panel in self.panels))


BARE = Panels(
    tuple(
        Panel(signal.name, signal.help, "short", None, None, (Line(signal.name, f"rl_{signal.name}"),))
        for signal in SIGNALS
        if signal.name in DRAWN
    ),
    {},
)
"""While there is no file: every signal that is kept, without limits."""


def read(content: bytes) -> Panels:
    """The panels of a file.

    Raises:
        ValueError: it does not hold any.
    """
    try:
        found = orjson.loads(content)
        about = {str(alert): frozenset(map(str, signals)) for alert, signals in found["about"].items()}
        return Panels(tuple(map(_panel, found["panels"])), about)
    except KeyError as problem:
        raise ValueError(f"{problem.args[0]!r} is missing") from None
    except (TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"it has another form ({problem})") from None


def _panel(found: Mapping[str, Any]) -> Panel:
    return Panel(
        str(found["title"]),
        str(found["description"]),
        str(found["unit"]),
        _end(found["low"]),
        _end(found["high"]),
        tuple(Line(str(line["name"]), checked(line["formula"])) for line in found["curves"]),
        tuple(Asked(str(asked["name"]), str(asked["promql"])) for asked in found["asked"]),
        tuple(map(_limit, found["limits"])),
    )


def _end(found: Any) -> float | None:
    return None if found is None else float(found)


def _limit(found: Mapping[str, Any]) -> Limit:
    words = {name: str(found[name]) for name in ("name", "alert", "severity", "side", "signal")}
    if words["side"] not in SIDES:
        raise ValueError(f"{words['side']!r} is no side of a limit")
    return Limit(**words, alone=bool(found["alone"]), formula=checked(found["formula"]))

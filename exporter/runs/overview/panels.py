"""What is drawn of a run: the panels of the Training dashboard, as generate.py wrote them down.

{"panels": [{"title": ..., "description": ..., "unit": ..., "low": null, "high": null,
             "curves": [{"name": ..., "signal": ..., "smoothed": false}],
             "asked": [{"name": ..., "signal": ..., "promql": ...}],
             "limits": [{"name": ..., "alert": ..., "severity": ..., "side": "low" or "high",
                         "signal": ..., "alone": ..., "promql": ...}]}],
 "about": {<alert>: [<signal>, ...]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from exporter.config_file import ConfigFile
from exporter.http.exposition import escape
from exporter.runs.model.history import DRAWN
from exporter.runs.signals import SIGNALS

SIDES = ("low", "high")

RUN = "run=${run:doublequote}"
"""Where PromQL selects a run, as the dashboard writes it."""


@dataclass(frozen=True)
class Line:
    """A curve of a panel: a signal as it is logged, or its smoothed values."""

    name: str
    signal: str
    smoothed: bool = False


@dataclass(frozen=True)
class Asked:
    """A curve that only Prometheus knows, such as one of GPUs: one value at a time, the same for all runs."""

    name: str
    signal: str
    promql: str

    def of(self, run: str | None = None) -> str:
        """Return the PromQL for a run, or for all runs."""
        return self.promql.replace(RUN, "" if run is None else f'run="{escape(run)}"')


@dataclass(frozen=True)
class Limit(Asked):
    """A limit of an alert: the ``signal`` may not be beyond it on this ``side``.

    ``name`` is what the dashboard calls it, the alert's as a rule. Unless it stands ``alone`` the alert
    looks at something else as well, and says nothing where only this is passed.
    """

    alert: str
    severity: str
    side: str
    alone: bool

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
        """What it shows of a run."""
        return frozenset(line.signal for line in self.curves)


@dataclass(frozen=True)
class Panels:
    """All panels, and the signals that each alert looks at."""

    panels: tuple[Panel, ...]
    about: Mapping[str, frozenset[str]]

    def of(self, signal: str) -> Panel | None:
        """Return the panel that shows a signal."""
        return next((panel for panel in self.panels if signal in panel.signals), None)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """The curves that only Prometheus knows."""
        return tuple(asked for panel in self.panels for asked in panel.asked)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of all panels."""
        return tuple(limit for panel in self.panels for limit in panel.limits)


BARE = Panels(
    tuple(
        Panel(signal.name, signal.help, "short", None, None, (Line(signal.name, signal.name),))
        for signal in SIGNALS
        if signal.name in DRAWN
    ),
    {},
)
"""While there is no file: every signal that is kept, without limits."""


def read(file: ConfigFile) -> Panels:
    """Return the panels of a file.

    Raises:
        ConfigFileError: It does not hold any.
    """
    found = file.values()
    try:
        about = {str(alert): frozenset(map(str, signals)) for alert, signals in found["about"].items()}
        return Panels(tuple(map(_panel, found["panels"])), about)
    except KeyError as problem:
        fault = f"{problem.args[0]}: missing"
    except (TypeError, ValueError, AttributeError) as problem:
        fault = f"of another form ({problem})"
    raise file.error(fault, "the panels that generate.py writes")


def _panel(found: Mapping[str, Any]) -> Panel:
    return Panel(
        str(found["title"]),
        str(found["description"]),
        str(found["unit"]),
        _end(found["low"]),
        _end(found["high"]),
        tuple(
            Line(**_texts(line, "name", "signal"), smoothed=bool(line["smoothed"]))
            for line in found["curves"]
        ),
        tuple(Asked(**_texts(asked, "name", "signal", "promql")) for asked in found["asked"]),
        tuple(map(_limit, found["limits"])),
    )


def _end(found: Any) -> float | None:
    return None if found is None else float(found)


def _limit(found: Mapping[str, Any]) -> Limit:
    texts = _texts(found, "name", "signal", "promql", "alert", "severity", "side")
    if texts["side"] not in SIDES:
        raise ValueError(f"{texts['side']!r} is not a side of a limit")
    return Limit(**texts, alone=bool(found["alone"]))


def _texts(found: Mapping[str, Any], *names: str) -> dict[str, str]:
    texts = {name: found[name] for name in names}
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"{wrong[0]!r} is not a text")
    return texts

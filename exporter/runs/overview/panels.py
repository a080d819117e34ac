"""What is drawn of a run: the panels of the Training dashboard, as generate.py wrote them down.

{"panels": [{"title": ..., "description": ..., "unit": ..., "low": null, "high": null,
             "curves": [{"name": ..., "signal": ..., "smoothed": false, "promql": ...}],
             "queries": [{"name": ..., "signal": ..., "promql": ...}],
             "limits": [{"name": ..., "alert": ..., "severity": ..., "side": "low" or "high",
                         "signal": ..., "alone": ..., "promql": ...}]}],
 "about": {<alert>: [<signal>, ...]},
 "notices": {"receivers": true, "keep_firing_seconds": 60.0,
             "book": {<alert>: {"meaning": ..., "causes": ..., "mitigation": ...}}}}
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from exporter.http.exposition import escape
from exporter.options import ConfigFile
from exporter.runs.model.history import DRAWN
from exporter.runs.overview.models import RunId
from exporter.runs.pages.web import Poller
from exporter.runs.signals import SIGNALS

logger = logging.getLogger(__name__)
NAME = "panels.json"  # it lies beside the settings
DEFAULT = Path(__file__).parents[2] / "generated" / NAME
"""Of a checkout; an image holds none, since the settings come from outside."""
INTERVAL_SECONDS = 2.0
SIDES = ("low", "high")
RUN = "run=${run:doublequote}"  # where PromQL selects a run, as the dashboard writes it
_CLUSTER = "cluster=${cluster:doublequote}"


def of_run(promql: str, run: RunId | None = None) -> str:
    """Return PromQL of a dashboard for a run or all; a run without a cluster has no such label here."""
    cluster = (run and run.cluster) or ""
    alone = "" if run is None else run.matchers
    both = "" if run is None else RunId(run.run, cluster).matchers
    chosen = promql.replace(f"{_CLUSTER},{RUN}", both).replace(RUN, alone)
    return chosen.replace(_CLUSTER, f'cluster="{escape(cluster)}"')


@dataclass(frozen=True)
class Query:
    """A curve that Prometheus is asked for, such as one of GPUs: one value at a time."""

    name: str
    signal: str
    promql: str

    def of(self, run: RunId | None = None) -> str:
        """Return the PromQL for a run, or for all runs."""
        return of_run(self.promql, run)


@dataclass(frozen=True)
class Line(Query):
    """A panel's curve, as logged or smoothed; Prometheus is asked where no log of the run is read here."""

    smoothed: bool = False


@dataclass(frozen=True)
class Limit(Query):
    """The ``signal`` may not be beyond it on this ``side``; unless ``alone``, the alert asks for more."""

    alert: str
    severity: str
    side: str
    alone: bool

    def is_passed(self, value: float, limit: float) -> bool:
        """Whether the value is beyond the limit."""
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
    queries: tuple[Query, ...] = ()
    limits: tuple[Limit, ...] = ()

    @cached_property
    def signals(self) -> frozenset[str]:
        """The signals of a run that it shows."""
        return frozenset(line.signal for line in self.curves)


HEADINGS = {"meaning": "Meaning", "causes": "Known causes", "mitigation": "Mitigation"}
"""Of the runbook's paragraphs, by their names."""
Book = tuple[tuple[str, str], ...]  # what the runbook says of an alert, by heading


@dataclass(frozen=True)
class Notices:
    """What pages say beside alerts; ``keep_firing`` in seconds, ``book`` for alerts about no run."""

    receivers: bool = True
    keep_firing: float | None = None
    book: Mapping[str, Book] = field(default_factory=dict)


@dataclass(frozen=True)
class Panels:
    """All panels, the signals that each alert looks at, and what pages say beside alerts."""

    panels: tuple[Panel, ...]
    about: Mapping[str, frozenset[str]]
    notices: Notices = Notices()

    def of(self, signal: str) -> Panel | None:
        """Return the panel that shows a signal."""
        return next((panel for panel in self.panels if signal in panel.signals), None)

    @property
    def queries(self) -> tuple[Query, ...]:
        """The curves that only Prometheus has."""
        return tuple(query for panel in self.panels for query in panel.queries)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The signals' curves of all panels."""
        return tuple(line for panel in self.panels for line in panel.curves)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of all panels."""
        return tuple(limit for panel in self.panels for limit in panel.limits)


def _logged(signal: str) -> Line:
    return Line(signal, signal, f"max by (cluster, run) (rl_{signal}{{{RUN}}})")


BARE = Panels(
    tuple(
        Panel(signal.name, signal.help, "short", None, None, (_logged(signal.name),))
        for signal in SIGNALS
        if signal.name in DRAWN
    ),
    {},
)
"""Without a file: every signal that has a history, without limits."""


class PanelFile(Poller):
    """The file of panels: ``panels`` are those of the last good version, ``errors`` counts unusable ones."""

    def __init__(self, path: Path) -> None:
        super().__init__("panels")
        self.errors = 0
        self.panels: Panels = BARE
        self._file = ConfigFile(str(path))
        self._read()

    def poll(self) -> float:
        """Read the file if it was replaced."""
        if self._file.changed():
            self._read()
        return INTERVAL_SECONDS

    def _read(self) -> None:
        try:
            self.panels = read(self._file)
        except ValueError as problem:
            self.errors += 1
            bare = self.panels is BARE
            left = "Curves are shown without limits" if bare else "The previous panels stay in use"
            logger.warning("%s %s.", problem, left)


def read(file: ConfigFile) -> Panels:
    """Return the panels of a file. Raises ``ConfigFileError``."""
    found = file.values()
    try:
        about = {str(alert): frozenset(map(str, signals)) for alert, signals in found["about"].items()}
        notices = found["notices"]
        book = {str(alert): book_of(texts) for alert, texts in notices["book"].items()}
        shown = Notices(bool(notices["receivers"]), float(notices["keep_firing_seconds"]), book)
        return Panels(tuple(map(_panel, found["panels"])), about, shown)
    except KeyError as problem:
        fault = f"{problem.args[0]}: missing"
    except (TypeError, ValueError, AttributeError) as problem:
        fault = f"of another form ({problem})"
    raise file.error(fault, "the panels that generate.py writes")


def book_of(texts: Mapping[str, str]) -> Book:
    """Return the runbook's paragraphs of an alert that there are."""
    return tuple((heading, str(texts[name])) for name, heading in HEADINGS.items() if texts.get(name))


def _panel(found: Mapping[str, Any]) -> Panel:
    low, high = (None if found[end] is None else float(found[end]) for end in SIDES)
    return Panel(
        **_texts(found, "title", "description", "unit"),
        low=low,
        high=high,
        curves=tuple(
            Line(**_texts(line, "name", "signal", "promql"), smoothed=bool(line["smoothed"]))
            for line in found["curves"]
        ),
        queries=tuple(Query(**_texts(query, "name", "signal", "promql")) for query in found["queries"]),
        limits=tuple(map(_limit, found["limits"])),
    )


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

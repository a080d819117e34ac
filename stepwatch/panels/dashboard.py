"""The panels of the rendered Training dashboard that are about a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import orjson

from stepwatch.backtest.expression import reads, signals
from stepwatch.dashboard import SEVERITY_COLOURS

TRAINING = PurePosixPath("grafana/generated/dashboards/training.json")
RUN = "${run:doublequote}"

_SEVERITIES = {colour: severity for severity, colour in SEVERITY_COLOURS.items()}


@dataclass(frozen=True)
class Query:
    """A line of a panel: its name, and the PromQL that it shows, of a run that is filled in later.

    ``severity`` is that of the alert whose limit it is; of a curve it is empty. A limit that is the
    same for every run has no name.
    """

    name: str
    expression: str
    severity: str = ""

    def of(self, run: str) -> str:
        """The PromQL for a run."""
        quoted = run.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return self.expression.replace(RUN, f'"{quoted}"')


@dataclass(frozen=True)
class Panel:
    """What one panel shows: curves, and limits of alerts.

    ``unit`` is Grafana's name for it; ``low`` and ``high`` are where its axis ends, if that is fixed.
    ``others`` are curves that are of no run, such as one of all GPUs.
    """

    title: str
    description: str
    unit: str
    curves: tuple[Query, ...]
    limits: tuple[Query, ...]
    low: float | None
    high: float | None
    others: tuple[Query, ...] = ()

    @property
    def signals(self) -> frozenset[str]:
        """What it is about."""
        return frozenset().union(*(signals(curve.of("")) for curve in self.curves))

    @property
    def metrics(self) -> frozenset[str]:
        """What must be loaded to draw it."""
        return frozenset().union(*(reads(query.of("")) for query in (*self.curves, *self.limits)))


def panels(files: Mapping[PurePosixPath, bytes]) -> tuple[Panel, ...]:
    """The time series panels about a run, in the order of the rendered dashboard."""
    shown = (each for each in orjson.loads(files[TRAINING])["panels"] if each["type"] == "timeseries")
    return tuple(panel for panel in map(_panel, shown) if panel.curves)


def _panel(panel: Mapping[str, Any]) -> Panel:
    looks = {
        each["matcher"]["options"]: {entry["id"]: entry["value"] for entry in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    asked = [
        query for target in panel["targets"] if (query := _query(target, looks.get(target["refId"], {})))
    ]
    queries = [query for query in asked if RUN in query.expression]
    defaults = panel["fieldConfig"]["defaults"]
    return Panel(
        panel["title"],
        panel.get("description", ""),
        defaults["unit"],
        tuple(query for query in queries if not query.severity),
        (*(query for query in queries if query.severity), *_fixed(defaults["thresholds"])),
        defaults.get("min"),
        defaults.get("max"),
        tuple(query for query in asked if RUN not in query.expression and "{{" not in query.name),
    )


def _query(target: Mapping[str, Any], look: Mapping[str, Any]) -> Query | None:
    """Dashed ones are limits; one that is drawn without a line only tells the step."""
    if look.get("custom.lineWidth") == 0:
        return None
    dashed = "custom.lineStyle" in look
    severity = _SEVERITIES[look["color"]["fixedColor"]] if dashed else ""
    return Query(target["legendFormat"], target["expr"], severity)


def _fixed(thresholds: Mapping[str, Any]) -> Iterator[Query]:
    """Limits that are the same for every run and at every step."""
    for step in thresholds["steps"]:
        if step["value"] is not None:
            yield Query(
                "",
                f"{step['value']} + 0 * max by (run) (rl_step{{run={RUN}}})",
                _SEVERITIES[step["color"]],
            )

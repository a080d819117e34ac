"""The panels of the Training dashboard, as far as an old log can fill them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import orjson

from stepwatch.backtest.expression import reads, signals
from stepwatch.config import Config
from stepwatch.dashboard import SEVERITY_COLOURS
from stepwatch.deployment import OnThisMachine
from stepwatch.generate import CHECKOUT, render_all

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
    """

    title: str
    unit: str
    curves: tuple[Query, ...]
    limits: tuple[Query, ...]
    low: float | None
    high: float | None

    @property
    def signals(self) -> frozenset[str]:
        """What it is about."""
        return frozenset().union(*(signals(curve.of("")) for curve in self.curves))

    @property
    def metrics(self) -> frozenset[str]:
        """What must be loaded to draw it."""
        return frozenset().union(*(reads(query.of("")) for query in (*self.curves, *self.limits)))


def training(config: Config) -> tuple[Panel, ...]:
    """Those of the dashboard that a configuration renders to."""
    return panels(render_all(config, CHECKOUT, OnThisMachine, services=["grafana"]))


def panels(files: Mapping[PurePosixPath, bytes]) -> tuple[Panel, ...]:
    """The time series panels about a run, in the order of the rendered dashboard."""
    shown = (each for each in orjson.loads(files[TRAINING])["panels"] if each["type"] == "timeseries")
    return tuple(panel for panel in map(_panel, shown) if panel.curves)


def _panel(panel: Mapping[str, Any]) -> Panel:
    looks = {
        each["matcher"]["options"]: {entry["id"]: entry["value"] for entry in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    queries = [
        _query(target, looks.get(target["refId"], {})) for target in panel["targets"] if RUN in target["expr"]
    ]
    defaults = panel["fieldConfig"]["defaults"]
    return Panel(
        panel["title"],
        defaults["unit"],
        tuple(query for query in queries if query and not query.severity),
        (*(query for query in queries if query and query.severity), *_fixed(defaults["thresholds"])),
        defaults.get("min"),
        defaults.get("max"),
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

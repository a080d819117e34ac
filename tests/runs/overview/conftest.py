"""Runs as a log tells them, and the panels of the default configuration."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from exporter.options import ConfigFile
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.overview.panels import Limit, Panels, Query, read
from exporter.runs.signals.record import Record
from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.config.loading import load_changed
from stepwatch.render.generator import render_all
from stepwatch.render.panels import FILE
from stepwatch.system.environment import CHECKOUT

Values = Mapping[str, float]

EVERY_LIMIT = (
    "alerts.KL.warning.above=0.1",
    "alerts.KL.critical.above=15",
    "alerts.Reward.warning.below_mean_ratio=0.2",
    "alerts.Reward.critical.below_mean_ratio=0.4",
    "alerts.GradNormHigh.warning.above=10",
    "alerts.LengthRunaway.warning.above=4000",
)
"""Those that are off by default."""


def run(records: Iterable[Values], first: int = 1, *, into: Run | None = None, **about: bool) -> Run:
    """A run that logged these records, a step each, now or (``live=False``) before anybody looked."""
    made = into or Run("flat_jsonl", "", Options())
    for step, values in enumerate(records, first):
        clock = Clock(1_700_000_000.0 + step, float(step), live=about.get("live", True))
        made.take(Record(step, values), clock)
    return made


@functools.cache
def config(*changes: str) -> Config:
    """The defaults, with these changes."""
    return load_changed(CHECKOUT / "config.yaml", list(changes))


@functools.cache
def panels(*changes: str) -> Panels:
    """What the exporter draws by a configuration."""
    with NamedTemporaryFile() as file:
        file.write(render_all(config(*changes), CHECKOUT, OnThisMachine, ("grafana", "exporter"))[FILE])
        file.flush()
        return read(ConfigFile(file.name))


def limit(name: str, severity: str = "") -> Limit:
    """A limit of the default configuration."""
    return next(each for each in panels().limits if each.name == name and severity in each.severity)


def asked(name: str) -> Query:
    """A curve that only Prometheus knows."""
    return next(each for each in panels().queries if each.name == name)


@pytest.fixture
def panel_file(tmp_path: Path) -> Path:
    """The file of panels of the default configuration."""
    path = tmp_path / "panels.json"
    path.write_bytes(render_all(config(), CHECKOUT, OnThisMachine, ("grafana", "exporter"))[FILE])
    return path

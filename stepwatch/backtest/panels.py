"""The panels that an old log can fill."""

from __future__ import annotations

from stepwatch.config import Config
from stepwatch.deployment import OnThisMachine
from stepwatch.generate import CHECKOUT, render_all
from stepwatch.panels.dashboard import Panel, panels


def training(config: Config) -> tuple[Panel, ...]:
    """Those of the Training dashboard that a configuration renders to."""
    return panels(render_all(config, CHECKOUT, OnThisMachine, services=["grafana"]))

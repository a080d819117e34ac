"""The panels that an old log can fill."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stepwatch.alerts.catalogue import TABLE
from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.dashboard import Json
from stepwatch.render.generator import training
from stepwatch.render.layout import RESOURCES
from stepwatch.render.panels import Panel, panels
from stepwatch.rules.lines import lines


@dataclass(frozen=True)
class Drawn:
    """The panels of the Training dashboard, with the limits of each run: overrides are not replayed."""

    config: Config

    @cached_property
    def _document(self) -> Json:
        return training(self.config, RESOURCES, OnThisMachine)

    @property
    def metrics(self) -> frozenset[str]:
        """What must be loaded to draw them."""
        drawn = panels(self._document, lines(self.config, TABLE))
        return frozenset().union(*(panel.metrics for panel in drawn))

    def of_run(self, run: str) -> tuple[Panel, ...]:
        """Return the panels with the limits of a run."""
        return panels(self._document, lines(self.config.of_run(run), TABLE))

"""Rules of the table for a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from exporter.runs import cli
from stepwatch.alerts.table import BLOCKS, TABLE
from stepwatch.config.deployment import InContainers
from stepwatch.config.models import Config
from stepwatch.rules import alerting
from stepwatch.rules.limits import served_overrides
from tests.rules import promtool
from tests.rules.series import Series

__all__ = ["BLOCKS", "TABLE", "config", "of", "rules", "served"]


def config(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration that config.yaml with these settings is."""
    return Config.model_validate(settings or {})


def rules(settings: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rules of the table for these settings, records and alerts."""
    return alerting.rules(config(settings), InContainers(), TABLE)


def of(settings: Mapping[str, Any], *alerts: str) -> list[dict[str, Any]]:
    """The rules of these alerts behind those of their limits, without messages."""
    every = ((rule.get("alert") or rule.get("labels", {}).get("alert"), rule) for rule in rules(settings))
    return promtool.silently(rule for name, rule in every if name in alerts)


def served(configured: Config, run: str) -> dict[Series, float]:
    """What the run exporter serves of a run with the settings that are rendered for it."""
    overrides = cli.overrides(json.dumps(served_overrides(configured)))
    return {
        Series("rl_limit_override", tuple(labels.items())): value for labels, value in overrides.samples(run)
    }

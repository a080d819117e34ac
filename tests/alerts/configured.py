"""Rules of the table for a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwatch.alerts import rules as table_rules
from stepwatch.alerts.catalogue import BLOCKS, TABLE
from stepwatch.config.models import Config
from stepwatch.deployment import InContainers

__all__ = ["BLOCKS", "TABLE", "config", "rules"]


def config(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration that config.yaml with these settings is."""
    return Config.model_validate(settings or {})


def rules(settings: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rules of the table for these settings, records and alerts."""
    return table_rules.rules(config(settings), InContainers(), TABLE)

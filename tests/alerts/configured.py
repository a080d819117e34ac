"""config.yaml as the table of alerts has it: its blocks in place of those of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import create_model

from stepwatch.alerts import (
    engines,
    entropy,
    gpu_health,
    gpu_load,
    gradient,
    host,
    kl,
    length,
    progress,
    ray,
    reward,
    rollouts,
    stack,
)
from stepwatch.alerts import rules as table_rules
from stepwatch.alerts.table import Alert
from stepwatch.config.alerts import Alerts
from stepwatch.config.block import Block
from stepwatch.config.models import Config
from stepwatch.deployment import InContainers

TOPICS = (
    reward,
    kl,
    entropy,
    length,
    gradient,
    rollouts,
    progress,
    gpu_health,
    gpu_load,
    engines,
    ray,
    host,
    stack,
)

TABLE: tuple[Alert, ...] = tuple(alert for topic in TOPICS for alert in topic.ALERTS)

BLOCKS: dict[str, type[Block]] = {alert.block.__name__: alert.block for alert in TABLE}

_ALERTS: Any = create_model(
    "TableAlerts", __base__=Alerts, **{name: (block, block()) for name, block in BLOCKS.items()}
)
_CONFIG: Any = create_model("TableConfig", __base__=Config, alerts=(_ALERTS, _ALERTS()))


def config(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration that config.yaml with these settings is."""
    found: Config = _CONFIG.model_validate(settings or {})
    return found


def rules(settings: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rules of the table for these settings, records and alerts."""
    return table_rules.rules(config(settings), InContainers(), TABLE)

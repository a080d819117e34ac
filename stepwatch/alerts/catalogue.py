"""All alerts: the entries of every topic, in the order of documents and of config.yaml."""

from __future__ import annotations

from collections.abc import Mapping

from stepwatch.alerts import (
    cluster,
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
from stepwatch.alerts.model.alert import Alert
from stepwatch.schema.section import Block

GROUPS: Mapping[str, tuple[Alert, ...]] = {
    "rl": (
        *reward.ALERTS,
        *kl.ALERTS,
        *entropy.ALERTS,
        *length.ALERTS,
        *gradient.ALERTS,
        *rollouts.ALERTS,
        *progress.ALERTS,
    ),
    "gpu": (*gpu_health.ALERTS, *gpu_load.ALERTS),
    "rollout": engines.ALERTS,
    "ray": ray.ALERTS,
    "host": host.ALERTS,
    "cluster": cluster.ALERTS,
    "stack": stack.ALERTS,
}
"""By the group of Prometheus that evaluates their rules, which has a file of that name."""

TABLE: tuple[Alert, ...] = tuple(alert for alerts in GROUPS.values() for alert in alerts)

BLOCKS: Mapping[str, type[Block]] = {alert.block.__name__: alert.block for alert in TABLE}
"""The limits of each alert, or pair of alerts, by their key below ``alerts``."""


def key(name: str) -> str:
    """Return the key of config.yaml that a key may be meant for: ``KLHigh`` is a part of ``alerts.KL``."""
    first, dot, rest = name.removeprefix("alerts.").partition(".")
    blocks = {alert.name: alert.block.__name__ for alert in TABLE} | {block: block for block in BLOCKS}
    return f"alerts.{blocks[first]}{dot}{rest}" if first in blocks else name

"""The truncated share of verl's v1 trainer, which is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.runs.signals.key import normal
from exporter.runs.signals.keys.verl import V1_KEYS

_V1_SPELLINGS = (*V1_KEYS, *map(normal, V1_KEYS))


def drop_batch_relative_truncation(
    found: dict[str, float], values: Mapping[str, Any], limit: int | None
) -> None:
    """Mend what verl 0.9's v1 trainer calls ``response_length/clip_ratio``.

    It is the share of responses as long as the longest of the batch: never 0. It is the truncated
    share only if the longest response reached the configured ``limit`` in tokens; below the limit
    nothing was truncated, and without a known limit nothing can be said.
    """
    if "truncated_ratio" not in found or not any(key in values for key in _V1_SPELLINGS):
        return
    if limit is None:
        del found["truncated_ratio"]
    elif found.get("response_length_max", limit) < limit:
        found["truncated_ratio"] = 0.0

"""What is known of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter.gpu.backend import Reading


class Report(NamedTuple):
    """What was last read from a GPU.

    ``at`` in seconds of the steady clock; ``missing`` reasons by call; ``errors`` counts by call and
    code; ``seconds`` that each tier took.
    """

    at: float
    reason: str
    readings: tuple[Reading, ...] = ()
    missing: Mapping[str, str] = {}
    errors: Mapping[tuple[str, str], int] = {}
    seconds: Mapping[str, float] = {}

"""The truncated share of verl's v1 trainer and of ROLL, set right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.runs.signals.key import normal
from exporter.runs.signals.record import number

V1_KEYS = ("training/num_turns/mean", "training/off_policy/trajectory_staleness/mean")
"""Keys that only verl's v1 trainer (0.9) logs; `prompt_truncated_ratio` of verl.yaml names them too."""
_RATIO = "response_length/clip_ratio"
_ROLL = "token/total_response_length/clip"
_SPELLINGS = (_RATIO, normal(_RATIO), f"rl_insight_monitor_{normal(_RATIO)}", _ROLL, normal(_ROLL))
_RELATIVE = (*V1_KEYS, *map(normal, V1_KEYS), _ROLL, normal(_ROLL))
TIMES = 3  # So often the longest responses of a batch have the same length only if that is the limit


class Truncation:
    """Corrects ``response_length/clip_ratio`` of one run, and what ROLL calls it.

    verl 0.9's v1 trainer compares each response with the longest of the batch (``metric_utils.py`` of
    0.9.1: the width of a tensor that v1 does not pad), as ROLL does, so its share is never 0. It is the
    truncated share only where the longest response reached the limit. Where no log tells the limit (event
    files, CSV), it is the length that no response exceeds and that the longest of several batches reached.
    Where no key shows that it is v1's, its share does: it is above 0 at more than one longest length.
    """

    def __init__(self) -> None:
        self._relative = False
        self._cut_at: float | None = None
        self._longest, self._times = 0.0, 0

    def correct(self, found: dict[str, float], values: Mapping[str, Any], limit: int | None) -> None:
        """Set right, or drop, the truncated share in ``found``, by the ``limit`` in tokens, if known."""
        share, longest = found.get("truncated_ratio"), found.get("response_length_max")
        written = [values[name] for name in _SPELLINGS if name in values]
        if share is None or not written or (share >= 0 and share != number(written[0])):
            return
        self._relative = self._relative or not values.keys().isdisjoint(_RELATIVE)
        if longest is not None:
            if share > 0:
                self._relative = self._relative or self._cut_at not in (None, longest)
                self._cut_at = longest
            if longest > self._longest:
                self._longest, self._times = longest, 0
            self._times += longest == self._longest
        if not self._relative:
            return
        if limit is None and (longest is None or (longest == self._longest and self._times < TIMES)):
            del found["truncated_ratio"]
        elif longest is not None and longest < (limit or self._longest):
            found["truncated_ratio"] = 0.0

"""Limits that `overrides` of config.yaml set for some runs, which the rules of Prometheus compare with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.http.exposition import Sample

MOST_KNOWN = 1024
"""Runs whose samples are remembered: a run is rendered at each of its steps."""


@dataclass(frozen=True)
class Override:
    """Limits of the runs of one pattern.

    Attributes:
        runs: Fits the whole name of a run.
        limits: By block and key, ``{"KL": {"warning.above": 0.5}}``; NaN takes a limit away.
    """

    runs: re.Pattern[str]
    limits: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Override:
        """Return the override that JSON describes, in which null is NaN.

        Raises:
            ValueError: It describes none.
        """
        try:
            limits = {
                str(block): {
                    str(key): float("nan" if value is None else value) for key, value in keys.items()
                }
                for block, keys in found["limits"].items()
            }
            return cls(re.compile(found["runs"], re.DOTALL), limits)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, re.error) as problem:
            raise ValueError(
                f'{found!r} is not an override. Expected one such as {{"runs": "sft-.*", "limits": '
                f'{{"KL": {{"enabled": 0}}}}}} ({problem!r})'
            ) from problem


class Overrides:
    """All overrides; of those that fit a run and name a block, the first one counts."""

    def __init__(self, overrides: Sequence[Override] = ()) -> None:
        self._overrides = tuple(overrides)
        self._known: dict[str, list[Sample]] = {}

    def samples(self, run: str) -> list[Sample]:
        """Return the samples of ``rl_limit_override`` of a run, by its name."""
        if run not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found: dict[str, Mapping[str, float]] = {}
            for override in self._overrides:
                if override.runs.fullmatch(run):
                    found = {**override.limits, **found}
            self._known[run] = [
                ({"limit": f"{block}.{key}"}, value)
                for block, limits in found.items()
                for key, value in limits.items()
            ]
        return self._known[run]

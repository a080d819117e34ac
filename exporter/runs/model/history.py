"""What became of one run over its steps: rebuilt from the log at each start, bounded however long it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.runs.model.extremes import Detail, Extremes
from exporter.runs.stats.statistics import SignalStatistics, is_measured

DRAWN = frozenset({
    "reward",
    "validation_score",
    "kl",
    "kl_teacher",
    "policy_kl",
    "kl_engine",
    "engine_prob_diff",
    "engine_prob_diff_max",
    "staleness",
    "staleness_max",
    "entropy",
    "policy_loss",
    "policy_clip_ratio",
    "value_loss",
    "grad_norm",
    "critic_grad_norm",
    "explained_variance",
    "mfu_ratio",
    "rollout_seconds",
    "update_actor_seconds",
    "step_seconds",
    "response_length",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "gpu_memory_allocated_bytes",
    "gpu_memory_reserved_bytes",
    "truncated_ratio",
    "zero_std_ratio",
})  # fmt: skip
"""The signals of the panels; a test demands that these are all. What is not drawn takes no memory."""

RESTARTS = 20
"""The last of a run that are drawn."""

ROWS = 20
"""Steps that are shown one by one."""


SMOOTHED = frozenset({"reward"})
"""The signals whose smoothed values are drawn as well."""


@dataclass(frozen=True, slots=True)
class Row:
    """One of the last steps: what was measured in it, by signal. ``time`` is ``None`` where it is unknown."""

    step: int
    time: float | None
    values: Mapping[str, float]


class HistorySnapshot(NamedTuple):
    """The history of a run as it was at one moment: ``curves`` and ``means`` by signal.

    ``restarts`` are the steps at which it went on from a checkpoint.
    """

    curves: Mapping[str, Extremes]
    means: Mapping[str, Extremes]
    rows: tuple[Row, ...]
    restarts: tuple[int, ...] = ()


class History:
    """Curves, smoothed curves, and the last steps. A mark changes nothing in them."""

    __slots__ = ("_adders", "_curves", "_detail", "_means", "_restarts", "_rows")

    def __init__(self, detail: Detail) -> None:
        self._detail = detail
        self._curves: dict[str, Extremes] = {}
        self._adders: dict[str, Callable[[int, float], None]] = {}
        self._means: dict[str, Extremes] = {}
        self._rows: deque[tuple[int, float | None, Mapping[str, float]]] = deque(maxlen=ROWS)
        self._restarts: deque[int] = deque(maxlen=RESTARTS)

    def note(
        self,
        step: int,
        time: float | None,
        new: Mapping[str, float],
        statistics: Mapping[str, SignalStatistics],
    ) -> None:
        """Take what a record measured, after the statistics did. ``time`` in seconds since the epoch."""
        for signal, value in new.items():
            if add := self._adders.get(signal):
                add(step, value)
            elif signal in DRAWN and (value or is_measured(signal, statistics)):
                curve = self._curves[signal] = Extremes(self._detail)
                self._adders[signal] = curve.add
                curve.add(step, value)
            if signal in SMOOTHED and (mean := statistics[signal].mean()) is not None:
                self._means.setdefault(signal, Extremes(self._detail)).add(step, mean)
        if self._rows and self._rows[-1][0] == step:
            new = {**self._rows.pop()[2], **new}
        self._rows.append((step, time, new))

    def resume(self, step: int) -> None:
        """Another attempt continues from an earlier step."""
        self._restarts.append(step)
        for curve in (*self._curves.values(), *self._means.values()):
            curve.breaks()

    def snapshot(self) -> HistorySnapshot:
        """Return a copy, which stays as it is."""
        return HistorySnapshot(
            {signal: curve.copy() for signal, curve in self._curves.items()},
            {signal: curve.copy() for signal, curve in self._means.items()},
            tuple(
                Row(
                    step,
                    time,
                    {signal: value for signal, value in values.items() if signal in self._curves},
                )
                for step, time, values in self._rows
            ),
            tuple(self._restarts),
        )

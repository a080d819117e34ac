"""Signals that a run should have and lacks: its log never had them under a known key, or lost them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from exporter.runs.signals.unmapped import RawKeys

JUDGING = ("reward", "validation_score", "kl", "kl_teacher", "kl_sequence", "policy_kl")
"""Of these an RL run logs at least one: rewards and divergences are what most alerts judge."""
REGULAR = ("reward", "kl", "policy_kl", "entropy", "response_length", "grad_norm")
"""Trainers log these in every step, or never: unlike validation, and counts that are left out at 0."""
PREFERENCES = "preference_"
"""How signals of preference optimisation begin, which has no reward or KL by nature."""
METRIC = "rl_run_signal_missing_info"
ENOUGH_STEPS = 10  # facts.yaml and docs/runbook.md say both numbers
REGULAR_STEPS = 20
"""In so many steps in a row a signal is regular; absent from as many, it is lost."""


class Missing(NamedTuple):
    """A signal that a run lacks, why (``unknown``, ``lost``), and the line for ``signals:``, if any."""

    signal: str
    reason: str
    setting: str


class Presence:
    """From which to which of the run's steps each regular signal came last without a gap."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[int, int]] = {}

    def note(self, step: int, found: Collection[str]) -> None:
        """Take the signals of a record of the run's n-th step."""
        for signal in REGULAR:
            if signal in found:
                first, last = self._spans.get(signal, (step, step))
                self._spans[signal] = (first if step - last <= 1 else step, step)

    def missing(self, steps: int, carried: frozenset[str], raw: RawKeys) -> tuple[Missing, ...]:
        """What a run of so many steps lacks that has the signals ``carried``, and other keys."""
        lost = [
            signal
            for signal, (first, last) in self._spans.items()
            if last - first >= REGULAR_STEPS - 1 and steps - last >= REGULAR_STEPS
        ]
        judged = not carried.isdisjoint(JUDGING) or any(name.startswith(PREFERENCES) for name in carried)
        if not lost and (judged or steps < ENOUGH_STEPS):
            return ()
        likely = {each.signal: each.setting for each in raw.candidates(carried.difference(lost))}
        if lost:
            return tuple(Missing(signal, "lost", likely.get(signal, "")) for signal in lost)
        return tuple(Missing(signal, "unknown", likely[signal]) for signal in JUDGING if signal in likely)

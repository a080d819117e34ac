"""Limits of the alerts on what rollouts are worth to the trainer, and on how fast they come."""

from __future__ import annotations

from stepwatch.config.block import Block
from stepwatch.config.scalars import Limit, Ratio
from stepwatch.config.section import Section


class RolloutMismatchWarning(Section):
    """Differences between rollout engine and trainer; `kl` in nats per token."""

    prob_diff: Ratio = 0.01
    prob_error: Limit = 1.05
    correlation: Ratio = 0.98
    kl: Limit = 0.01


class RolloutMismatchCritical(Section):
    """As the warning; `effective_samples` is the share of samples that weighting leaves."""

    prob_diff: Ratio = 0.02
    kl: Limit = 0.1
    effective_samples: Ratio = 0.3


class RolloutMismatch(Block):
    """RolloutMismatch."""

    warning: RolloutMismatchWarning | None = RolloutMismatchWarning()
    critical: RolloutMismatchCritical | None = RolloutMismatchCritical()


class Staleness(Block):
    """Weight versions between generation and training, mean of 20 steps."""

    warning: Limit | None = 8


class SlowStepsWarning(Section):
    """Tokens per second as share of their median, seconds per token as multiple of theirs."""

    of_median: Ratio = 0.5
    times_median: Limit = 3


class SlowSteps(Block):
    """SlowSteps."""

    warning: SlowStepsWarning | None = SlowStepsWarning()

"""Limits of the alerts on what a run logs. Field names are the keys of config.yaml; why each number: there.

A level (`warning`, `critical`) that is None is off. Limits without a unit in their comment are
counts, or factors of the run's own noise, start or peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from stepwatch.config.block import Block
from stepwatch.config.scalars import Count, Limit, Ratio
from stepwatch.config.section import Section


class NonFinite(Block):
    """Steps in a row with a value that is not finite."""

    warning: Count | None = 1
    critical: Count | None = 3


class RewardWarning(Section):
    """RewardDrop; `noises` over 5 steps, `slow_noises` over 20, `lost` as share of the best.

    `quick_noises` and `quick_lost` over 3, for a curve that is smoothed less.

    `below_mean` is a share of the mean of 32 steps, whatever the noise.
    """

    noises: Limit = 2.5
    slow_noises: Limit = 2
    lost: Ratio = 0.1
    quick_noises: Limit = 3.5
    quick_lost: Ratio = 0.25
    below_mean: Ratio | None = None


class RewardCritical(Section):
    """RewardCollapse; as the warning, and `gain_lost` as share of what the best is above the start."""

    noises: Limit = 4
    lost: Ratio = 0.3
    gain_lost: Ratio = 0.6
    quick_noises: Limit = 4
    quick_lost: Ratio = 0.5
    below_mean: Ratio | None = None


class Reward(Block):
    """RewardDrop, RewardCollapse."""

    names: ClassVar[Mapping[str, str]] = {"warning": "RewardDrop", "critical": "RewardCollapse"}

    warning: RewardWarning | None = RewardWarning()
    critical: RewardCritical | None = RewardCritical()


class RewardStagnationWarning(Section):
    """No new best for `steps`, which are `share_of_run`, and `records` were logged."""

    steps: Count = 300
    share_of_run: Ratio = 0.5
    records: Count = 64
    solved: Ratio = 0.9


class RewardStagnation(Block):
    """RewardStagnation."""

    warning: RewardStagnationWarning | None = RewardStagnationWarning()


class NoLearningSignalWarning(Section):
    """Rewards dead or stuck within `spread`, or `zero_std` groups all alike with reward `lost`."""

    zero_std: Ratio = 0.95
    lost: Ratio = 0.1
    spread: Ratio = 0.1
    ceiling: Limit | None = None


class NoLearningSignal(Block):
    """NoLearningSignal."""

    warning: NoLearningSignalWarning | None = NoLearningSignalWarning()


class KLWarning(Section):
    """KLHigh; `above_start` and `above` in nats per token."""

    above_start: Limit = 0.5
    noises: Limit = 3
    above: Limit | None = None


class KLCritical(Section):
    """KLExplosion; `above_start` and `above` in nats per token; less will do with the reward `lost`."""

    above_start: Limit = 1
    noises: Limit = 6
    above_start_when_losing: Limit = 0.5
    noises_when_losing: Limit = 3
    lost: Ratio = 0.3
    above: Limit | None = None


class KL(Block):
    """KLHigh, KLExplosion."""

    names: ClassVar[Mapping[str, str]] = {"warning": "KLHigh", "critical": "KLExplosion"}

    warning: KLWarning | None = KLWarning()
    critical: KLCritical | None = KLCritical()


class PolicyKLHighWarning(Section):
    """`above` in nats per token."""

    above: Limit = 0.1
    times_start: Limit = 5


class PolicyKLHigh(Block):
    """PolicyKLHigh."""

    warning: PolicyKLHighWarning | None = PolicyKLHighWarning()


class EntropyCollapseWarning(Section):
    """`below` in nats per token."""

    of_peak: Ratio = 0.05
    low: Limit = 0.02
    of_peak_when_losing: Ratio = 0.1
    low_when_losing: Limit = 0.05
    below: Limit = 0.01
    lost: Ratio = 0.1
    records: Count = 32
    share_of_run: Ratio = 0.5
    solved: Ratio = 0.9


class EntropyCollapse(Block):
    """EntropyCollapse."""

    warning: EntropyCollapseWarning | None = EntropyCollapseWarning()


class EntropyExplosionWarning(Section):
    """`above_start` in nats per token."""

    times_start: Limit = 2
    above_start: Limit = 0.5


class EntropyExplosionCritical(Section):
    """The warning with this much of the reward lost."""

    lost: Ratio = 0.3


class EntropyExplosion(Block):
    """EntropyExplosion."""

    warning: EntropyExplosionWarning | None = EntropyExplosionWarning()
    critical: EntropyExplosionCritical | None = EntropyExplosionCritical()


class LengthRunawayWarning(Section):
    """`truncated_rise` is the rise of the truncated share that growth alone does not bring.

    `above` in tokens, whatever is cut.
    """

    times_start: Limit = 2
    truncated_rise: Ratio = 0.15
    lost: Ratio = 0.1
    above: Limit | None = None


class LengthRunaway(Block):
    """LengthRunaway."""

    warning: LengthRunawayWarning | None = LengthRunawayWarning()


class LengthCollapseWarning(Section):
    """Sudden against the median, or slow against the peak with reward `lost`."""

    of_median: Ratio = 0.25
    of_peak: Ratio = 0.1
    lost: Ratio = 0.1


class LengthCollapseCritical(Section):
    """The warning with this much of the reward lost."""

    lost: Ratio = 0.3


class LengthCollapse(Block):
    """LengthCollapse."""

    warning: LengthCollapseWarning | None = LengthCollapseWarning()
    critical: LengthCollapseCritical | None = LengthCollapseCritical()


class TruncationWarning(Section):
    """Shares of truncated responses."""

    mean_above_start: Ratio = 0.3
    always_above: Ratio = 0.9


class TruncationCritical(Section):
    """Shares of truncated responses, with this much of the reward lost."""

    above: Ratio = 0.5
    above_start: Ratio = 0.3
    lost: Ratio = 0.3


class Truncation(Block):
    """Truncation."""

    warning: TruncationWarning | None = TruncationWarning()
    critical: TruncationCritical | None = TruncationCritical()


class GradNormHigh(Block):
    """Median of 5 steps against the mean of 64 and `noises` above it, and against `above`."""

    warning: Limit | None = 4
    noises: Limit = 4
    above: Limit | None = None

"""What rules about other signals ask of the reward."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, UNTIL, Limit
from tests.rules.series import Series


def not_solved(share: float) -> tuple[Limit, ...]:
    """Limits between a run that is solved, at this share of the highest samples, and one that is not."""
    return (
        # the mean is near the largest score there is, which is positive
        Limit(h.REWARD_MEAN, UNTIL, share * 4),
        Limit(h.HIGHEST_MEDIAN, UNTIL, 0, {h.REWARD_MEAN: 0.5}),
        # it does not leave its level, and nothing is lost
        Limit(h.REWARD_RANGE_10, FROM, 0.03 * 2),
        Limit(h.REWARD_MEAN, BELOW, 9, {h.REWARD_BEST: 10, h.REWARD_RANGE_10: 0, h.HIGHEST_MEDIAN: 20}),
    )


UNKNOWN_CEILING = (h.HIGHEST_MEDIAN, h.REWARD_MEAN, h.REWARD_RANGE_10)
"""Without these a run is not known to be solved."""


def suffers(lost: Series, share: float) -> tuple[Limit, ...]:
    """Limits of a loss of reward: this share of the best, and two noises."""
    return (
        Limit(lost, ABOVE, share * 4, {h.REWARD_BEST: 4, h.REWARD_NOISE: 0.0625}),
        Limit(lost, ABOVE, share * 4, {h.REWARD_BEST: -4, h.REWARD_NOISE: 0.0625}),
        Limit(lost, ABOVE, 2 * 0.375, {h.REWARD_NOISE: 0.375, h.REWARD_BEST: 0.5}),
    )

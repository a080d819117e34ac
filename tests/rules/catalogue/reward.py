"""The reward falls, dies or stands still."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, EQUAL, FROM, UNTIL, Condition, Limit, Rule
from tests.rules.catalogue.rewards import UNKNOWN_CEILING, not_solved

NO_SPREAD = {h.REWARD_RANGE_20: 0, h.REWARD_STD: 0, h.SAMPLES_RANGE_20: 0}
"""All rewards of 20 steps are the same."""


def _dead(name: str, highest: h.Series, spread: h.Series) -> Condition:
    """Not one positive sample, and all alike."""
    return Condition(
        name,
        {highest: -0.25, spread: 0},
        limits=(Limit(highest, UNTIL, 0), Limit(spread, EQUAL, 0)),
        needs=(highest, spread),
        spares=(h.REWARD_BEST, h.REWARD_NOISE),
    )


def _quick(fall: float, noises: float, share: float, gain_lost: float | None = None) -> Condition:
    """Far below the best for three steps, smoothed little; with most of the gain lost, if that is asked."""
    gained = [Limit(h.REWARD_DRAWDOWN_3, ABOVE, gain_lost * 2, {h.REWARD_START: 0})] if gain_lost else []
    return Condition(
        "within three steps",
        {h.REWARD_DRAWDOWN_3: fall},
        limits=(
            Limit(h.REWARD_DRAWDOWN_3, ABOVE, noises * 0.25, {h.REWARD_BEST: 0.5}),
            Limit(h.REWARD_DRAWDOWN_3, ABOVE, share * 2, {h.REWARD_NOISE: 0.0625}),
            Limit(h.REWARD_DRAWDOWN_3, ABOVE, share * 2, {h.REWARD_NOISE: 0.0625, **h.NEGATIVE_BEST}),
            *gained,
        ),
        needs=(
            h.REWARD_DRAWDOWN_3,
            h.REWARD_NOISE,
            h.REWARD_BEST,
            *([h.REWARD_START] if gain_lost else []),
        ),
        spares=(h.REWARD_DRAWDOWN_5, h.REWARD_DRAWDOWN_20),
    )


def _below_mean(share: float) -> Condition:
    """Whatever its noise and its best, the reward stays this share below the mean of 32 steps."""
    return Condition(
        "below its mean",
        {h.REWARD_MAX_5: 0.125},
        limits=(
            Limit(h.REWARD_MAX_5, BELOW, 1.75 - share * 1.75),
            Limit(h.REWARD_MAX_5, BELOW, -2 - share * 2, {h.REWARD_MEAN_32: -2}),
        ),
        needs=(h.REWARD_MAX_5, h.REWARD_MEAN_32),
        spares=(h.REWARD_BEST, h.REWARD_NOISE, h.REWARD_DRAWDOWN_5),
    )


RULES = (
    Rule(
        "RewardDrop",
        "warning",
        "Reward",
        conditions=(
            Condition(
                "fast fall",
                {h.REWARD_DRAWDOWN_5: 0.75},
                limits=(
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 2.5 * 0.25),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.1 * 2, {h.REWARD_NOISE: 0.0625}),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.1 * 2, {h.REWARD_NOISE: 0.0625, **h.NEGATIVE_BEST}),
                ),
                needs=(h.REWARD_DRAWDOWN_5, h.REWARD_NOISE, h.REWARD_BEST),
                spares=(h.REWARD_DRAWDOWN_20,),
            ),
            Condition(
                "slow fall",
                {h.REWARD_DRAWDOWN_5: 0.5, h.REWARD_DRAWDOWN_20: 0.75},
                limits=(
                    Limit(h.REWARD_DRAWDOWN_20, ABOVE, 2 * 0.25),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.REWARD_DRAWDOWN_20, h.REWARD_DRAWDOWN_5, h.REWARD_NOISE, h.REWARD_BEST),
            ),
            _quick(1.5, 3.5, 0.25),
            _below_mean(0.25),
        ),
    ),
    Rule(
        "RewardCollapse",
        "critical",
        "Reward",
        conditions=(
            Condition(
                "fall",
                {h.REWARD_DRAWDOWN_5: 1.5},
                limits=(
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 4 * 0.25, {h.REWARD_START: 0.5}),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.3 * 2, {h.REWARD_NOISE: 0.125}),
                    Limit(
                        h.REWARD_DRAWDOWN_5,
                        ABOVE,
                        0.3 * 2,
                        {h.REWARD_NOISE: 0.125, h.REWARD_START: -2.75, **h.NEGATIVE_BEST},
                    ),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.6 * 2, {h.REWARD_START: 0}),
                ),
                needs=(h.REWARD_DRAWDOWN_5, h.REWARD_NOISE, h.REWARD_BEST, h.REWARD_START),
                spares=(h.REWARD_MAX_20, h.HIGHEST_20),
            ),
            Condition(
                "back at its start",
                {h.REWARD_DRAWDOWN_5: 0.9, h.REWARD_BEST: 3.5, h.REWARD_START: 3, h.REWARD_NOISE: 0.125},
                limits=(
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 4 * 0.1875, {h.REWARD_NOISE: 0.1875}),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.2 * 3.5),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.2 * 3.5, {h.REWARD_BEST: -3.5, h.REWARD_START: -4}),
                    Limit(h.REWARD_DRAWDOWN_5, ABOVE, 0.75, {h.REWARD_START: 2.75}),
                ),
                needs=(h.REWARD_DRAWDOWN_5, h.REWARD_NOISE, h.REWARD_BEST, h.REWARD_START),
                spares=(h.REWARD_DRAWDOWN_3,),
            ),
            _quick(1.5, 4, 0.5, 0.6),
            _dead("dead mean", h.REWARD_MAX_20, h.REWARD_RANGE_20),
            _dead("dead samples", h.HIGHEST_20, h.SAMPLES_RANGE_20),
            _below_mean(0.5),
        ),
    ),
    Rule(
        "RewardStagnation",
        "warning",
        "RewardStagnation",
        conditions=(
            Condition(
                "no new best",
                {h.STEPS_SINCE_BEST: 400},
                limits=(
                    Limit(h.STEPS_SINCE_BEST, FROM, 300, {h.STEPS_SEEN: 500}),
                    Limit(h.STEPS_SINCE_BEST, FROM, 0.5 * 640),
                    Limit(h.RECORDS_SEEN, FROM, 64),
                    *not_solved(0.9),
                    # saturated: hardly any spread, and nothing lost
                    Limit(h.REWARD_STD, FROM, 0.05 * 1.75),
                    Limit(
                        h.REWARD_MEAN,
                        BELOW,
                        9,
                        {h.REWARD_BEST: 10, h.REWARD_STD: 0, h.HIGHEST_MEDIAN: 20},
                    ),
                    Limit(
                        h.REWARD_MEAN,
                        BELOW,
                        -11,
                        {h.REWARD_BEST: -10, h.REWARD_STD: 0, h.REWARD_MEAN_20: 1, h.HIGHEST_MEDIAN: -1},
                    ),
                ),
                needs=(h.STEPS_SINCE_BEST, h.STEPS_SEEN, h.RECORDS_SEEN),
                once=(h.REWARD_MEAN_20,),
                spares=(h.REWARD_STD, h.REWARD_BEST, *UNKNOWN_CEILING),
            ),
        ),
        silent={
            "solved": {h.STEPS_SINCE_BEST: 400, h.REWARD_MEAN: 3.9},
            "saturated": {h.STEPS_SINCE_BEST: 400, h.REWARD_STD: 0.01},
            "at a level that it does not leave": {h.STEPS_SINCE_BEST: 400, h.REWARD_RANGE_10: 0.03125},
        },
    ),
    Rule(
        "NoLearningSignal",
        "warning",
        "NoLearningSignal",
        conditions=(
            _dead("dead mean", h.REWARD_MAX_10, h.REWARD_RANGE_10),
            _dead("dead samples", h.HIGHEST_10, h.SAMPLES_RANGE_10),
            Condition(
                "the same from the start",
                {h.REWARD_MAX_20: 1.125, **NO_SPREAD},
                limits=(
                    Limit(h.REWARD_RANGE_20, EQUAL, 0),
                    Limit(h.REWARD_MAX_20, UNTIL, 1.125),
                    Limit(h.REWARD_STD, UNTIL, 0),
                    Limit(h.SAMPLES_RANGE_20, UNTIL, 0),
                ),
                needs=(h.REWARD_RANGE_20,),
                spares=(h.REWARD_LOST, h.REWARD_STD, h.SAMPLES_RANGE_20, h.ZERO_STD),
            ),
            Condition(
                "the same below its best",
                {h.REWARD_LOST: 0.5, **NO_SPREAD},
                limits=(
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.REWARD_RANGE_20, h.REWARD_LOST, h.REWARD_BEST),
                spares=(h.REWARD_START, h.REWARD_STD, h.SAMPLES_RANGE_20),
            ),
            Condition(
                "stuck at a floor",
                {h.REWARD_MAX_32: -0.25, h.REWARD_RANGE_32: 0.03125, h.REWARD_MEDIAN_32: -0.5},
                limits=(
                    Limit(h.REWARD_MAX_32, UNTIL, 0),
                    Limit(h.REWARD_RANGE_32, UNTIL, 0.1 * 0.5),
                ),
                needs=(h.REWARD_MAX_32, h.REWARD_RANGE_32, h.REWARD_MEDIAN_32),
            ),
            Condition(
                "no gradient",
                {h.GRAD_NORM_MAX: 0},
                limits=(
                    Limit(h.GRAD_NORM_MAX, UNTIL, 0),
                    Limit(h.REWARD_RANGE_20, ABOVE, 0),
                    Limit(h.ZERO_STD, BELOW, 1),
                    Limit(h.REWARD_STD, ABOVE, 0),
                ),
                needs=(h.GRAD_NORM_MAX, h.REWARD_RANGE_20),
                spares=(h.ZERO_STD, h.REWARD_STD, h.REWARD_BEST),
            ),
            Condition(
                "groups without spread",
                {h.ZERO_STD: 0.97, h.REWARD_LOST: 0.5},
                limits=(
                    Limit(h.ZERO_STD, FROM, 0.95),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.ZERO_STD, h.REWARD_LOST, h.REWARD_BEST),
            ),
        ),
        silent={
            "all groups solved": {h.ZERO_STD: 1, h.REWARD_LOST: 0},
            "risen to a ceiling": {h.ZERO_STD: 1, h.REWARD_LOST: 0, **NO_SPREAD},
            "rewards by rank, of which the mean is always the same": {
                h.REWARD_MAX_20: 1.125,
                h.REWARD_RANGE_20: 0,
            },
        },
    ),
)

"""The policy becomes certain, or random."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, Condition, Limit, Rule
from tests.rules.catalogue.rewards import UNKNOWN_CEILING, not_solved, suffers

RULES = (
    Rule(
        "EntropyCollapse",
        "warning",
        "EntropyCollapse",
        conditions=(
            Condition(
                "nothing left",
                {h.ENTROPY_MEDIAN: 0.005},
                limits=(Limit(h.ENTROPY_MEDIAN, BELOW, 0.01), *not_solved(0.95)),
                needs=(h.ENTROPY_MEDIAN,),
                spares=(h.ENTROPY_PEAK, h.REWARD_LOST, h.GAIN, *UNKNOWN_CEILING),
            ),
            Condition(
                "little of the peak without a gain",
                {h.ENTROPY_MEAN_MAX: 0.03125, h.GAIN: 0.125},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1, {h.ENTROPY_PEAK: 7}),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05 * 1),
                    Limit(h.GAIN, BELOW, 3 * 0.25),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.GAIN, h.REWARD_NOISE),
                spares=(h.REWARD_LOST, h.ENTROPY_MEDIAN),
            ),
            Condition(
                "less while reward is lost",
                {h.ENTROPY_MEAN_MAX: 0.03125, h.REWARD_LOST: 0.75, h.GAIN: 2},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1 * 0.375, {h.ENTROPY_PEAK: 0.375}),
                    *suffers(h.REWARD_LOST, 0.1),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.REWARD_LOST, h.REWARD_BEST),
                spares=(h.GAIN,),
            ),
        ),
        silent={
            "low with a rising reward": {h.ENTROPY_MEAN_MAX: 0.03125},
            "a small part of a high peak": {h.ENTROPY_MEAN_MAX: 0.25, h.ENTROPY_PEAK: 7, h.REWARD_LOST: 0.75},
            "solved": {h.ENTROPY_MEDIAN: 0.005, h.REWARD_MEAN: 3.9},
            "at a level that the reward does not leave": {
                h.ENTROPY_MEDIAN: 0.005,
                h.REWARD_RANGE_10: 0.03125,
            },
        },
    ),
    Rule(
        "EntropyExplosion",
        "warning",
        "EntropyExplosion",
        conditions=(
            Condition(
                "above the start",
                {h.ENTROPY_MIN: 4},
                limits=(
                    Limit(h.ENTROPY_MIN, ABOVE, 2 * 1),
                    Limit(h.ENTROPY_MIN, ABOVE, 0.25 + 0.5, {h.ENTROPY_START: 0.25}),
                ),
                needs=(h.ENTROPY_MIN, h.ENTROPY_START),
            ),
        ),
    ),
    Rule(
        "EntropyExplosion",
        "critical",
        "EntropyExplosion",
        conditions=(
            Condition(
                "above the start while reward is lost",
                {h.ENTROPY_MIN: 4, h.REWARD_LOST_FAST: 0.75},
                limits=(
                    Limit(h.ENTROPY_MIN, ABOVE, 2 * 1),
                    Limit(h.ENTROPY_MIN, ABOVE, 0.25 + 0.5, {h.ENTROPY_START: 0.25}),
                    *suffers(h.REWARD_LOST_FAST, 0.3),
                ),
                needs=(h.ENTROPY_MIN, h.ENTROPY_START, h.REWARD_LOST_FAST, h.REWARD_BEST, h.REWARD_NOISE),
            ),
        ),
    ),
)

"""The policy becomes certain, or random."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, Condition, Limit, Rule
from tests.rules.catalogue.rewards import NOT_SOLVED, UNKNOWN_CEILING, suffers

RULES = (
    Rule(
        "EntropyCollapse",
        "warning",
        "EntropyCollapse",
        conditions=(
            Condition(
                "nothing left",
                {h.ENTROPY_MAX: 0.005},
                limits=(Limit(h.ENTROPY_MAX, BELOW, 0.01), *NOT_SOLVED),
                needs=(h.ENTROPY_MAX,),
                spares=(h.ENTROPY_PEAK, h.REWARD_LOST, h.RECORDS_SINCE_BEST, *UNKNOWN_CEILING),
            ),
            Condition(
                "little of the peak",
                {h.ENTROPY_MEAN_MAX: 0.015625},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.02),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05 * 0.25, {h.ENTROPY_PEAK: 0.25}),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05 * 0.375, {h.ENTROPY_PEAK: 0.375}),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK),
                spares=(h.REWARD_LOST, h.RECORDS_SINCE_BEST),
            ),
            Condition(
                "less while reward is lost",
                {h.ENTROPY_MEAN_MAX: 0.03125, h.REWARD_LOST: 0.75},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1 * 0.375, {h.ENTROPY_PEAK: 0.375}),
                    *suffers(h.REWARD_LOST, 0.1),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.REWARD_LOST, h.REWARD_BEST, h.REWARD_NOISE),
                spares=(h.RECORDS_SINCE_BEST, h.RECORDS_SEEN),
            ),
            Condition(
                "less without a new best",
                {h.ENTROPY_MEAN_MAX: 0.03125, h.RECORDS_SINCE_BEST: 400},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05),
                    Limit(h.RECORDS_SINCE_BEST, FROM, 32, {h.RECORDS_SEEN: 48}),
                    Limit(h.RECORDS_SINCE_BEST, FROM, 0.5 * 640),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.RECORDS_SINCE_BEST, h.RECORDS_SEEN),
                spares=(h.REWARD_LOST,),
            ),
        ),
        silent={
            "low with a rising reward": {h.ENTROPY_MEAN_MAX: 0.03125},
            "a small part of a high peak": {h.ENTROPY_MEAN_MAX: 0.25, h.ENTROPY_PEAK: 7, h.REWARD_LOST: 0.75},
            "solved": {h.ENTROPY_MAX: 0.005, h.REWARD_MEAN: 3.9},
            "at a level that the reward does not leave": {h.ENTROPY_MAX: 0.005, h.REWARD_RANGE_10: 0.03125},
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

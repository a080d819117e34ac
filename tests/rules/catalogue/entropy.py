"""The policy becomes certain, or random."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, Limit, Rule, Way

RULES = (
    Rule(
        "EntropyCollapse",
        "warning",
        "EntropyCollapse",
        ways=(
            Way(
                "nothing left",
                {h.ENTROPY_MAX: 0.005},
                limits=(Limit(h.ENTROPY_MAX, BELOW, 0.01),),
                needs=(h.ENTROPY_MAX,),
                spares=(h.ENTROPY_PEAK, h.REWARD_LOST, h.RECORDS_SINCE_BEST),
                says=("entropy 0.5 nats/token", "limits 0.01, 0.05 (5 %", "0.1 (10 %", "reward 1.75, best 2"),
            ),
            Way(
                "little of the peak",
                {h.ENTROPY_MEAN_MAX: 0.03125},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05 * 1),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.05 * 2, {h.ENTROPY_PEAK: 2}),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK),
                spares=(h.REWARD_LOST, h.RECORDS_SINCE_BEST),
                says=("at most 0.0312 for 10 steps", "0.05 (5 %"),
            ),
            Way(
                "less while reward is lost",
                {h.ENTROPY_MEAN_MAX: 0.0625, h.REWARD_LOST: 0.5},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1 * 1),
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1 * 2, {h.ENTROPY_PEAK: 2}),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.REWARD_LOST, h.REWARD_BEST),
                spares=(h.RECORDS_SINCE_BEST,),
                says=("at most 0.0625 for 10 steps", "0.1 (10 %"),
            ),
            Way(
                "less without a new best",
                {h.ENTROPY_MEAN_MAX: 0.0625, h.RECORDS_SINCE_BEST: 80},
                limits=(
                    Limit(h.ENTROPY_MEAN_MAX, BELOW, 0.1 * 1),
                    Limit(h.RECORDS_SINCE_BEST, FROM, 64),
                ),
                needs=(h.ENTROPY_MEAN_MAX, h.ENTROPY_PEAK, h.RECORDS_SINCE_BEST),
                spares=(h.REWARD_LOST,),
                says=("at most 0.0625 for 10 steps", "0.1 (10 %"),
            ),
        ),
        silent={"low with a rising reward": {h.ENTROPY_MEAN_MAX: 0.0625}},
    ),
    Rule(
        "EntropyExplosion",
        "warning",
        "EntropyExplosion",
        ways=(
            Way(
                "above the start",
                {h.ENTROPY_MIN: 4},
                limits=(
                    Limit(h.ENTROPY_MIN, ABOVE, 2 * 1),
                    Limit(h.ENTROPY_MIN, ABOVE, 0.25 + 0.5, {h.ENTROPY_START: 0.25}),
                ),
                needs=(h.ENTROPY_MIN, h.ENTROPY_START),
                says=(
                    "at least 4 nats/token for 3 steps",
                    "started at 1",
                    "limits 2 (2 times",
                    "1.5 (0.5 more)",
                ),
            ),
        ),
    ),
    Rule(
        "EntropyExplosion",
        "critical",
        "EntropyExplosion",
        ways=(
            Way(
                "above the start while reward is lost",
                {h.ENTROPY_MIN: 4, h.REWARD_LOST_FAST: 0.75},
                limits=(
                    Limit(h.ENTROPY_MIN, ABOVE, 2 * 1),
                    Limit(h.ENTROPY_MIN, ABOVE, 0.25 + 0.5, {h.ENTROPY_START: 0.25}),
                    Limit(h.REWARD_LOST_FAST, ABOVE, 0.3 * 2),
                    Limit(h.REWARD_LOST_FAST, ABOVE, 0.3 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.ENTROPY_MIN, h.ENTROPY_START, h.REWARD_LOST_FAST, h.REWARD_BEST),
                says=("at least 4 nats/token for 3 steps", "reward 1.75, best 2, limit 30 % of it lost"),
            ),
        ),
    ),
)

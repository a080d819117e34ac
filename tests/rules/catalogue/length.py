"""Responses grow, shrink or are cut."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, Condition, Limit, Rule
from tests.rules.catalogue.rewards import suffers

RULES = (
    Rule(
        "LengthRunaway",
        "warning",
        "LengthRunaway",
        conditions=(
            Condition(
                "growth while reward is lost",
                {h.LENGTH_MIN: 1000, h.REWARD_LOST: 0.75},
                limits=(Limit(h.LENGTH_MIN, ABOVE, 2 * 300), *suffers(h.REWARD_LOST, 0.1)),
                needs=(h.LENGTH_MIN, h.LENGTH_START, h.REWARD_LOST, h.REWARD_BEST, h.REWARD_NOISE),
                spares=(h.TRUNCATED_MEAN_5, h.TRUNCATED_START),
            ),
            Condition(
                "growth into the limit",
                {h.LENGTH_MIN: 1000, h.TRUNCATED_MEAN_5: 0.5},
                limits=(
                    Limit(h.LENGTH_MIN, ABOVE, 2 * 300),
                    Limit(h.TRUNCATED_MEAN_5, ABOVE, 0.15, {h.TRUNCATED_START: 0}),
                ),
                needs=(h.LENGTH_MIN, h.LENGTH_START, h.TRUNCATED_MEAN_5, h.TRUNCATED_START),
                spares=(h.REWARD_LOST, h.REWARD_BEST, h.REWARD_NOISE),
            ),
            Condition(
                "far growth that begins to be cut",
                {h.LENGTH_MIN: 2000, h.TRUNCATED_MEAN_5: 0.125, h.TRUNCATED_START: 0},
                limits=(
                    Limit(h.LENGTH_MIN, ABOVE, 4 * 300),
                    Limit(h.TRUNCATED_MEAN_5, ABOVE, 0.05),
                    Limit(h.TRUNCATED_MEAN_5, ABOVE, 0.125 + 0.05, {h.TRUNCATED_START: 0.125}),
                ),
                needs=(h.LENGTH_MIN, h.LENGTH_START, h.TRUNCATED_MEAN_5, h.TRUNCATED_START),
                spares=(h.REWARD_LOST, h.REWARD_BEST, h.REWARD_NOISE),
            ),
            Condition(
                "above a fixed limit",
                {h.LENGTH_MIN: 4096, h.LENGTH_START: 4096},
                limits=(Limit(h.LENGTH_MIN, ABOVE, 2048),),
                needs=(h.LENGTH_MIN,),
                spares=(h.LENGTH_START, h.TRUNCATED_MEAN_5, h.TRUNCATED_START),
            ),
        ),
        silent={
            "growth alone": {h.LENGTH_MIN: 1000},
            "growth where truncation is not logged": {
                h.LENGTH_MIN: 1000,
                h.TRUNCATED_MEAN_5: None,
                h.TRUNCATED_START: None,
            },
            "as much cut from the start": {
                h.LENGTH_MIN: 1000,
                h.TRUNCATED_MEAN_5: 0.5,
                h.TRUNCATED_START: 0.5,
            },
        },
    ),
    Rule(
        "LengthCollapse",
        "warning",
        "LengthCollapse",
        conditions=(
            Condition(
                "sudden",
                {h.LENGTH_MEDIAN_5: 50},
                limits=(Limit(h.LENGTH_MEDIAN_5, BELOW, 0.25 * 400),),
                needs=(h.LENGTH_MEDIAN_5, h.LENGTH_MEDIAN_64),
                spares=(h.LENGTH_PEAK, h.REWARD_LOST, h.REWARD_BEST),
            ),
            Condition(
                "slow while reward is lost",
                {h.LENGTH_MEDIAN_5: 40, h.LENGTH_MEDIAN_64: 60, h.REWARD_LOST: 0.5},
                limits=(
                    Limit(h.LENGTH_MEDIAN_5, BELOW, 0.1 * 500),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                ),
                needs=(h.LENGTH_MEDIAN_5, h.LENGTH_PEAK, h.REWARD_LOST, h.REWARD_BEST),
                spares=(h.LENGTH_MEDIAN_64,),
            ),
        ),
        silent={"short by success": {h.LENGTH_MEDIAN_5: 40, h.LENGTH_MEDIAN_64: 60}},
    ),
    Rule(
        "LengthCollapse",
        "critical",
        "LengthCollapse",
        conditions=(
            Condition(
                "sudden",
                {h.LENGTH_MEDIAN_5: 50, h.REWARD_LOST_FAST: 0.75},
                limits=(
                    Limit(h.LENGTH_MEDIAN_5, BELOW, 0.25 * 400),
                    *suffers(h.REWARD_LOST_FAST, 0.3),
                ),
                needs=(
                    h.LENGTH_MEDIAN_5,
                    h.LENGTH_MEDIAN_64,
                    h.REWARD_LOST_FAST,
                    h.REWARD_BEST,
                    h.REWARD_NOISE,
                ),
                spares=(h.LENGTH_PEAK, h.REWARD_LOST),
            ),
            Condition(
                "slow",
                {
                    h.LENGTH_MEDIAN_5: 40,
                    h.LENGTH_MEDIAN_64: 60,
                    h.REWARD_LOST: 0.5,
                    h.REWARD_LOST_FAST: 0.75,
                },
                limits=(
                    Limit(h.LENGTH_MEDIAN_5, BELOW, 0.1 * 500),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2),
                    Limit(h.REWARD_LOST, ABOVE, 0.1 * 2, h.NEGATIVE_BEST),
                    *suffers(h.REWARD_LOST_FAST, 0.3)[:1],
                ),
                needs=(h.LENGTH_MEDIAN_5, h.LENGTH_PEAK, h.REWARD_LOST, h.REWARD_LOST_FAST, h.REWARD_BEST),
                spares=(h.LENGTH_MEDIAN_64,),
            ),
        ),
    ),
    Rule(
        "Truncation",
        "warning",
        "Truncation",
        conditions=(
            Condition(
                "rise",
                {h.TRUNCATED_MEAN_10: 0.75},
                limits=(
                    Limit(h.TRUNCATED_MEAN_10, ABOVE, 0.3, {h.TRUNCATED_START: 0}),
                    Limit(h.TRUNCATED_MEAN_10, ABOVE, 0.3 + 0.3, {h.TRUNCATED_START: 0.3}),
                ),
                needs=(h.TRUNCATED_MEAN_10, h.TRUNCATED_START),
                spares=(h.TRUNCATED_MIN_10,),
            ),
            Condition(
                "nothing ever finishes",
                {h.TRUNCATED_MIN_10: 0.95, h.TRUNCATED_START: 0.95},
                limits=(Limit(h.TRUNCATED_MIN_10, FROM, 0.9),),
                needs=(h.TRUNCATED_MIN_10,),
                spares=(h.TRUNCATED_MEAN_10, h.TRUNCATED_START),
            ),
        ),
        silent={"high from the start": {h.TRUNCATED_MEAN_10: 0.84, h.TRUNCATED_START: 0.75}},
    ),
    Rule(
        "Truncation",
        "critical",
        "Truncation",
        conditions=(
            Condition(
                "rise while reward is lost",
                {h.TRUNCATED_MIN_3: 0.75, h.REWARD_LOST_FAST: 0.75},
                limits=(
                    Limit(h.TRUNCATED_MIN_3, ABOVE, 0.5),
                    Limit(h.TRUNCATED_MIN_3, ABOVE, 0.3 + 0.3, {h.TRUNCATED_START: 0.3}),
                    *suffers(h.REWARD_LOST_FAST, 0.3),
                ),
                needs=(
                    h.TRUNCATED_MIN_3,
                    h.TRUNCATED_START,
                    h.REWARD_LOST_FAST,
                    h.REWARD_BEST,
                    h.REWARD_NOISE,
                ),
            ),
        ),
    ),
)

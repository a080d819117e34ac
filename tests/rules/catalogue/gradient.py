"""Gradients grow, updates are clipped, the critic is lost, and numbers are none."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, Condition, Limit, Rule
from tests.rules.catalogue.rewards import suffers

RULES = (
    *(
        Rule(
            "NonFinite",
            severity,
            "NonFinite",
            conditions=tuple(
                Condition(
                    f"in {streak}",
                    {streak: 5},
                    limits=(Limit(streak, FROM, limit),),
                    needs=(streak,),
                )
                for streak in h.STREAKS
            ),
        )
        for severity, limit in (("warning", 1), ("critical", 3))
    ),
    Rule(
        "GradNormHigh",
        "warning",
        "GradNormHigh",
        conditions=(
            Condition(
                "above its lowest level",
                {h.GRAD_NORM_MIN: 8},
                limits=(
                    Limit(h.GRAD_NORM_MIN, ABOVE, 8 * 0.5),
                    Limit(h.GRAD_NORM_MIN, ABOVE, 8 * 0.25, {h.GRAD_NORM_LOWEST: 0.25}),
                ),
                needs=(h.GRAD_NORM_MIN, h.GRAD_NORM_LOWEST),
                spares=(h.GRAD_NORM_MEDIAN, h.GRAD_NORM_LEVEL, h.GRAD_NORM_SPREAD, h.REWARD_LOST),
            ),
            Condition(
                "above its level while reward is lost",
                {h.GRAD_NORM_MEDIAN: 10, h.REWARD_LOST: 0.75},
                limits=(
                    Limit(h.GRAD_NORM_MEDIAN, ABOVE, 4 * 1),
                    Limit(h.GRAD_NORM_MEDIAN, ABOVE, 4 * 2, {h.GRAD_NORM_LEVEL: 2}),
                    Limit(h.GRAD_NORM_MEDIAN, ABOVE, 1 + 4 * 2, {h.GRAD_NORM_SPREAD: 2}),
                    *suffers(h.REWARD_LOST, 0.1),
                ),
                needs=(
                    *(h.GRAD_NORM_MEDIAN, h.GRAD_NORM_LEVEL, h.GRAD_NORM_SPREAD),
                    *(h.REWARD_LOST, h.REWARD_BEST, h.REWARD_NOISE),
                ),
                spares=(h.GRAD_NORM_MIN, h.GRAD_NORM_LOWEST),
            ),
            Condition(
                "above a fixed limit",
                {h.GRAD_NORM_MEDIAN: 128, h.GRAD_NORM_LEVEL: 128},
                limits=(Limit(h.GRAD_NORM_MEDIAN, ABOVE, 64),),
                needs=(h.GRAD_NORM_MEDIAN,),
                spares=(h.GRAD_NORM_LEVEL, h.GRAD_NORM_SPREAD),
            ),
        ),
        silent={
            "no gradient at all": {h.GRAD_NORM_MEDIAN: 0, h.GRAD_NORM_LEVEL: 0, h.GRAD_NORM_MIN: 0},
            "a burst of spikes at the best reward": {h.GRAD_NORM_MEDIAN: 64},
        },
    ),
    Rule(
        "ClipFractionHigh",
        "warning",
        "ClipFractionHigh",
        conditions=(
            Condition(
                "most is clipped",
                {h.CLIPPED_MIN: 0.75},
                limits=(Limit(h.CLIPPED_MIN, ABOVE, 0.5),),
                needs=(h.CLIPPED_MIN,),
            ),
        ),
    ),
    Rule(
        "PolicyLossPositive",
        "info",
        "PolicyLossPositive",
        conditions=(
            Condition(
                "above 0",
                {h.POLICY_LOSS_MIN: 0.5},
                limits=(Limit(h.POLICY_LOSS_MIN, ABOVE, 0),),
                needs=(h.POLICY_LOSS_MIN,),
            ),
        ),
    ),
    Rule(
        "CriticDiverged",
        "warning",
        "CriticDiverged",
        conditions=(
            Condition(
                "explains less than nothing",
                {h.EXPLAINED_MAX: -0.5},
                limits=(Limit(h.EXPLAINED_MAX, BELOW, 0), Limit(h.RECORDS, FROM, 50)),
                needs=(h.EXPLAINED_MAX, h.RECORDS),
                spares=(h.VALUE_LOSS, h.VALUE_LOSS_USUAL),
            ),
            Condition(
                "its loss leaps",
                {h.VALUE_LOSS: 2},
                limits=(
                    Limit(h.VALUE_LOSS, ABOVE, 5 * 0.25),
                    Limit(h.RECORDS, FROM, 50),
                ),
                needs=(h.VALUE_LOSS, h.VALUE_LOSS_USUAL, h.RECORDS),
                spares=(h.EXPLAINED_MAX,),
            ),
        ),
        silent={"a critic warms up": {h.EXPLAINED_MAX: -0.5, h.VALUE_LOSS: 2, h.RECORDS: 49}},
    ),
)

"""Gradients grow, and numbers are none."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, FROM, Limit, Rule, Way

RULES = (
    *(
        Rule(
            "NonFinite",
            severity,
            "NonFinite",
            ways=tuple(
                Way(
                    f"in {streak}",
                    {streak: 5},
                    limits=(Limit(streak, FROM, limit),),
                    needs=(streak,),
                    says=(dict(streak.labels)["signal"], f"in a row: 5, limit {limit}"),
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
        ways=(
            Way(
                "above the mean",
                {h.GRAD_NORM_MEDIAN: 8},
                limits=(
                    Limit(h.GRAD_NORM_MEDIAN, ABOVE, 4 * 1),
                    Limit(h.GRAD_NORM_MEDIAN, ABOVE, 4 * 2, {h.GRAD_NORM_MEAN: 2}),
                ),
                needs=(h.GRAD_NORM_MEDIAN, h.GRAD_NORM_MEAN),
                says=("gradient norm 8", "limit 4 (4 times"),
            ),
        ),
        silent={"no gradient at all": {h.GRAD_NORM_MEDIAN: 0, h.GRAD_NORM_MEAN: 0}},
    ),
)

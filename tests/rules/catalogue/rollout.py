"""Rollouts are not what the trainer takes them for, or too old."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, Condition, Limit, Rule

MEASURES = {h.PROB_DIFF_MIN, h.PROB_ERROR_MIN, h.CORRELATION_MAX, h.EFFECTIVE_MAX, h.ENGINE_KL_MIN}


def _beyond(name: str, limit: Limit, value: float, says: str) -> Condition:
    """One measure of many is enough, and needs no other."""
    return Condition(
        name,
        {limit.series: value},
        limits=(limit,),
        needs=(limit.series,),
        spares=tuple(sorted(MEASURES - {limit.series})),
    )


RULES = (
    Rule(
        "RolloutMismatch",
        "warning",
        "RolloutMismatch",
        conditions=(
            _beyond(
                "probabilities", Limit(h.PROB_DIFF_MIN, ABOVE, 0.01), 0.05, "by at least 0.05, limit 0.01"
            ),
            _beyond("factor", Limit(h.PROB_ERROR_MIN, ABOVE, 1.05), 1.5, "by a factor of 1.5, limit 1.05"),
            _beyond("correlation", Limit(h.CORRELATION_MAX, BELOW, 0.98), 0.5, "at most 0.5, limit 0.98"),
            _beyond("divergence", Limit(h.ENGINE_KL_MIN, ABOVE, 0.01), 0.05, "KL at least 0.05, limit 0.01"),
        ),
    ),
    Rule(
        "RolloutMismatch",
        "critical",
        "RolloutMismatch",
        conditions=(
            _beyond(
                "probabilities", Limit(h.PROB_DIFF_MIN, ABOVE, 0.02), 0.05, "by at least 0.05, limit 0.02"
            ),
            _beyond("divergence", Limit(h.ENGINE_KL_MIN, ABOVE, 0.1), 0.5, "KL at least 0.5, limit 0.1"),
            _beyond("weights", Limit(h.EFFECTIVE_MAX, BELOW, 0.3), 0.1, "samples at most 0.1, limit 0.3"),
        ),
    ),
    Rule(
        "Staleness",
        "warning",
        "Staleness",
        conditions=(
            Condition(
                "old samples",
                {h.STALENESS: 16},
                limits=(Limit(h.STALENESS, ABOVE, 8),),
                needs=(h.STALENESS,),
            ),
        ),
    ),
)

"""Rollouts are not what the trainer takes them for, or too old."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, FROM, Condition, Limit, Rule

MEASURES = {
    h.PROB_DIFF_MIN,
    h.PROB_ERROR_MIN,
    h.CORRELATION_MAX,
    h.EFFECTIVE_MAX,
    h.ENGINE_KL_MIN,
    h.LOGPROB_DIFF_MIN,
}


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
            _beyond("log probabilities", Limit(h.LOGPROB_DIFF_MIN, ABOVE, 0.05), 0.5, "by at least 0.5"),
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
            _beyond("log probabilities", Limit(h.LOGPROB_DIFF_MIN, ABOVE, 0.2), 0.5, "by at least 0.5"),
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
                spares=(h.STALE_DROPPED,),
            ),
            Condition(
                "dropped samples",
                {h.STALE_DROPPED: 0.75},
                limits=(Limit(h.STALE_DROPPED, ABOVE, 0.5),),
                needs=(h.STALE_DROPPED,),
                spares=(h.STALENESS,),
            ),
        ),
    ),
    Rule(
        "RolloutFailures",
        "warning",
        "RolloutFailures",
        conditions=(
            Condition(
                "a share",
                {h.ROLLOUTS_LOST: 0.5},
                limits=(Limit(h.ROLLOUTS_LOST, FROM, 0.2),),
                needs=(h.ROLLOUTS_LOST,),
                spares=(h.ROLLOUTS_FAILED,),
            ),
            Condition(
                "a count",
                {h.ROLLOUTS_FAILED: 2},
                limits=(Limit(h.ROLLOUTS_FAILED, ABOVE, 0),),
                needs=(h.ROLLOUTS_FAILED,),
                spares=(h.ROLLOUTS_LOST,),
            ),
        ),
    ),
    Rule(
        "ToolFailures",
        "warning",
        "ToolFailures",
        conditions=(
            Condition(
                "more than at the start",
                {h.TOOLS_FAIL: 0.875},
                limits=(
                    Limit(h.TOOLS_FAIL, FROM, 0.125 + 0.3, {h.TOOLS_FAIL_START: 0.125}),
                    Limit(h.CALLS_5, FROM, 0.1),
                ),
                needs=(h.TOOLS_FAIL, h.TOOLS_FAIL_START),
                spares=(h.TOOLS_FAIL_MIN, h.CALLS_5),
            ),
            Condition(
                "dead from the start",
                {h.TOOLS_FAIL_MIN: 1, h.TOOLS_FAIL: 1, h.TOOLS_FAIL_START: 1},
                limits=(Limit(h.TOOLS_FAIL_MIN, FROM, 0.9), Limit(h.CALLS_5, FROM, 0.1)),
                needs=(h.TOOLS_FAIL_MIN,),
                spares=(h.TOOLS_FAIL, h.TOOLS_FAIL_START, h.CALLS_5),
            ),
        ),
    ),
    Rule(
        "ToolsUnused",
        "warning",
        "ToolsUnused",
        conditions=(
            Condition(
                "hardly called",
                {h.CALLS_10: 0.03125},
                limits=(
                    Limit(h.CALLS_10, BELOW, 0.1 * 2),
                    Limit(h.CALLS_START, FROM, 0.5),
                ),
                needs=(h.CALLS_10, h.CALLS_START),
            ),
        ),
    ),
    Rule(
        "PromptsExhausted",
        "warning",
        "PromptsExhausted",
        conditions=(
            Condition(
                "many rounds",
                {h.ROUNDS_MIN: 9},
                limits=(
                    Limit(h.ROUNDS_MIN, FROM, 5),
                    Limit(h.ROUNDS_MIN, FROM, 3 * 2, {h.ROUNDS_START: 2}),
                ),
                needs=(h.ROUNDS_MIN, h.ROUNDS_START),
                spares=(h.FILTERED,),
            ),
            Condition(
                "most are filtered",
                {h.FILTERED: 1},
                limits=(Limit(h.FILTERED, FROM, 0.9),),
                needs=(h.FILTERED,),
                spares=(h.ROUNDS_MIN, h.ROUNDS_START),
            ),
        ),
    ),
)

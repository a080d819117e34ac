"""Validation falls, or the reward rises and what it stands for does not."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, Condition, Limit, Rule

NOISY = {h.VALIDATION_NOISE: 0.03125}


def _fell(drop: float, noises: float, noise: str) -> Condition:
    """Beyond both limits; with more noise, the other one decides."""
    return Condition(
        "two evaluations below the best",
        {h.VALIDATION_MAX: -0.25},
        limits=(
            Limit(h.VALIDATION_MAX, BELOW, 0.125 - drop),
            Limit(h.VALIDATION_MAX, BELOW, 0.125 - noises * 0.03125, NOISY),
        ),
        needs=(h.VALIDATION_MAX, h.VALIDATION_BEST, h.VALIDATION_NOISE),
    )


RULES = (
    *(
        Rule("ValidationDrop", severity, "ValidationDrop", conditions=(_fell(drop, noises, noise),))
        for severity, drop, noises, noise in (
            ("warning", 0.03, 5, "0.0195"),
            ("critical", 0.1, 10, "0.0391"),
        )
    ),
    Rule(
        "RewardHackSuspect",
        "warning",
        "RewardHackSuspect",
        conditions=(
            Condition(
                "the true part does not follow",
                {h.TRUE_GAIN: 0.0625},
                limits=(
                    Limit(h.TRUE_GAIN, BELOW, 0.75 * 0.2),
                    Limit(h.GAIN, ABOVE, 2 * 0.25, {h.TRUE_GAIN: -1}),
                    Limit(h.GAIN, ABOVE, 0.05, {h.TRUE_GAIN: -1, h.REWARD_NOISE: 0}),
                ),
                needs=(h.GAIN, h.TRUE_GAIN, h.REWARD_NOISE),
                spares=(h.VALIDATION_MAX, h.VALIDATION_BEST, h.VALIDATION_NOISE),
            ),
            Condition(
                "validation falls, and no part is named",
                {h.VALIDATION_MAX: -0.25, h.TRUE_GAIN: None},
                limits=(
                    Limit(h.VALIDATION_MAX, BELOW, 0.125 - 0.03),
                    Limit(h.VALIDATION_MAX, BELOW, 0.125 - 5 * 0.03125, NOISY),
                    Limit(h.GAIN, ABOVE, 2 * 0.25),
                ),
                needs=(h.GAIN, h.VALIDATION_MAX, h.VALIDATION_BEST, h.VALIDATION_NOISE),
            ),
        ),
        silent={
            "validation falls while the true part follows": {h.VALIDATION_MAX: -0.25},
            "the true part falls with the reward": {h.GAIN: -0.75, h.TRUE_GAIN: -0.75},
        },
    ),
)

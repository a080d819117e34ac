"""KL to the reference, and between policies."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, BELOW, Condition, Limit, Rule
from tests.rules.catalogue.rewards import suffers
from tests.rules.series import Series


def _above(limit: float, lowest: Series = h.KL_MIN) -> Condition:
    """An absolute limit, whatever the start."""
    return Condition(
        "above a fixed limit",
        {lowest: 64, h.KL_START: 64},
        limits=(Limit(lowest, ABOVE, limit),),
        needs=(lowest,),
        spares=(h.KL_START, h.KL_NOISE),
    )


RULES = (
    Rule(
        "KLHigh",
        "warning",
        "KL",
        conditions=(
            Condition(
                "above the start",
                {h.KL_MIN_5: 1},
                limits=(
                    Limit(h.KL_MIN_5, ABOVE, 0.125 + 0.5),
                    Limit(h.KL_MIN_5, ABOVE, 0.125 + 3 * 1, {h.KL_NOISE: 1}),
                ),
                needs=(h.KL_MIN_5, h.KL_START, h.KL_NOISE),
            ),
            _above(16, h.KL_MIN_5),
        ),
        silent={"as high from the start": {h.KL_MIN_5: 8, h.KL_START: 8}},
    ),
    Rule(
        "KLExplosion",
        "critical",
        "KL",
        conditions=(
            Condition(
                "far above the start",
                {h.KL_MIN: 2},
                limits=(
                    Limit(h.KL_MIN, ABOVE, 0.125 + 1),
                    Limit(h.KL_MIN, ABOVE, 0.125 + 6 * 1, {h.KL_NOISE: 1}),
                ),
                needs=(h.KL_MIN, h.KL_START, h.KL_NOISE),
            ),
            Condition(
                "above the start while reward is lost",
                {h.KL_MIN: 1, h.REWARD_LOST_FAST: 0.75},
                limits=(
                    Limit(h.KL_MIN, ABOVE, 0.125 + 0.5),
                    Limit(h.KL_MIN, ABOVE, 0.125 + 3 * 0.25, {h.KL_NOISE: 0.25}),
                    *suffers(h.REWARD_LOST_FAST, 0.3),
                ),
                needs=(h.KL_MIN, h.KL_START, h.KL_NOISE, h.REWARD_LOST_FAST, h.REWARD_BEST, h.REWARD_NOISE),
            ),
            _above(32),
        ),
        silent={"as high from the start": {h.KL_MIN: 8, h.KL_START: 8}},
    ),
    Rule(
        "KLNegative",
        "warning",
        "KLNegative",
        conditions=tuple(
            Condition(
                name,
                {highest: -64},
                limits=(
                    Limit(highest, BELOW, limit, {noise: 2**-10}),
                    Limit(highest, BELOW, -3 * 4, {noise: 4}),
                ),
                needs=(highest, noise),
            )
            for name, highest, noise, limit in (
                ("below 0", h.KL_MAX, h.KL_NOISE, -0.01),
                ("a sum below 0", h.KL_SEQUENCE_MAX, h.KL_SEQUENCE_NOISE, -1),
            )
        ),
    ),
    Rule(
        "KLSequenceHigh",
        "warning",
        "KLSequence",
        conditions=(
            Condition(
                "above the start, by the token",
                {h.KL_SEQUENCE_MIN: 512},
                limits=(
                    Limit(h.KL_SEQUENCE_MIN, ABOVE, (0.125 + 0.5) * 512),
                    Limit(h.KL_SEQUENCE_MIN, ABOVE, 0.125 * 512 + 3 * 128, {h.KL_SEQUENCE_NOISE: 128}),
                ),
                needs=(
                    h.KL_SEQUENCE_MIN,
                    h.KL_SEQUENCE_START,
                    h.KL_SEQUENCE_NOISE,
                    h.LENGTH_MEAN_3,
                    h.LENGTH_START,
                ),
            ),
            Condition(
                "above a fixed limit",
                {h.KL_SEQUENCE_MIN: 2048, h.KL_SEQUENCE_START: 2048},
                limits=(Limit(h.KL_SEQUENCE_MIN, ABOVE, 1024, {h.LENGTH_MEAN_3: None}),),
                needs=(h.KL_SEQUENCE_MIN,),
                spares=(h.KL_SEQUENCE_START, h.KL_SEQUENCE_NOISE, h.LENGTH_MEAN_3, h.LENGTH_START),
            ),
        ),
        silent={"responses grow, and the KL with them": {h.KL_SEQUENCE_MIN: 512, h.LENGTH_MEAN_3: 4096}},
    ),
    Rule(
        "KLTeacherHigh",
        "warning",
        "KLTeacher",
        conditions=(
            Condition(
                "away from the teacher",
                {h.KL_TEACHER_MIN: 4},
                limits=(
                    Limit(h.KL_TEACHER_MIN, ABOVE, 2 + 1),
                    Limit(h.KL_TEACHER_MIN, ABOVE, 2 + 6 * 1, {h.KL_TEACHER_NOISE: 1}),
                ),
                needs=(h.KL_TEACHER_MIN, h.KL_TEACHER_START, h.KL_TEACHER_NOISE),
            ),
        ),
        silent={"as far from the start": {h.KL_TEACHER_MIN: 8, h.KL_TEACHER_START: 8}},
    ),
    Rule(
        "PolicyKLHigh",
        "warning",
        "PolicyKLHigh",
        conditions=(
            Condition(
                "far each update",
                {h.POLICY_KL_MIN: 0.5},
                limits=(
                    Limit(h.POLICY_KL_MIN, ABOVE, 0.1),
                    Limit(h.POLICY_KL_MIN, ABOVE, 5 * 0.0625, {h.POLICY_KL_START: 0.0625}),
                    Limit(h.POLICY_KL_MIN, ABOVE, 5 * 0.0625, {h.POLICY_KL_START: -0.0625}),
                ),
                needs=(h.POLICY_KL_MIN, h.POLICY_KL_START),
            ),
        ),
    ),
)

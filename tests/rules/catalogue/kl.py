"""KL to the reference, and between policies."""

from __future__ import annotations

from tests.rules import healthy as h
from tests.rules.cases import ABOVE, Limit, Rule, Way

RULES = (
    Rule(
        "KLHigh",
        "warning",
        "KL",
        ways=(
            Way(
                "above the start",
                {h.KL_MIN: 1},
                limits=(
                    Limit(h.KL_MIN, ABOVE, 0.125 + 0.5),
                    Limit(h.KL_MIN, ABOVE, 0.125 + 3 * 1, {h.KL_NOISE: 1}),
                ),
                needs=(h.KL_MIN, h.KL_START, h.KL_NOISE),
                says=(
                    "KL at least 1 nats/token for 3 steps",
                    "start 0.125 by 0.875",
                    "limits 0.5 and 0.188 (3 times",
                ),
            ),
        ),
        silent={"as high from the start": {h.KL_MIN: 8, h.KL_START: 8}},
    ),
    Rule(
        "KLExplosion",
        "critical",
        "KL",
        ways=(
            Way(
                "far above the start",
                {h.KL_MIN: 2},
                limits=(
                    Limit(h.KL_MIN, ABOVE, 0.125 + 1),
                    Limit(h.KL_MIN, ABOVE, 0.125 + 6 * 1, {h.KL_NOISE: 1}),
                ),
                needs=(h.KL_MIN, h.KL_START, h.KL_NOISE),
                says=(
                    "KL at least 2 nats/token for 3 steps",
                    "start 0.125 by 1.88",
                    "limits 1 and 0.375 (6 times",
                ),
            ),
        ),
        silent={"as high from the start": {h.KL_MIN: 8, h.KL_START: 8}},
    ),
    Rule(
        "PolicyKLHigh",
        "warning",
        "PolicyKLHigh",
        ways=(
            Way(
                "far each update",
                {h.POLICY_KL_MIN: 0.5},
                limits=(
                    Limit(h.POLICY_KL_MIN, ABOVE, 0.1),
                    Limit(h.POLICY_KL_MIN, ABOVE, 5 * 0.0625, {h.POLICY_KL_START: 0.0625}),
                    Limit(h.POLICY_KL_MIN, ABOVE, 5 * 0.0625, {h.POLICY_KL_START: -0.0625}),
                ),
                needs=(h.POLICY_KL_MIN, h.POLICY_KL_START),
                says=("at least 0.5 nats/token for 5 steps", "limits 0.1 and 0.0391 (5 times"),
            ),
        ),
    ),
)

"""Alerts on the quality of rollouts, from the trainer's own log."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import DOCUMENTED, JUDGED, Alert, Condition
from stepwatch.alerts.model.expression import Limit
from stepwatch.alerts.model.runs import over
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

_alert = partial(Alert, topic="rollout")


class RolloutMismatchWarning(Section):
    """Any one of these limits for 5 steps in a row. fp8 rollouts and stale samples have higher values."""

    prob_diff: scalars.Ratio = default(
        0.01,
        "Mean difference of probabilities. verl's documentation: normal below 0.005, a problem above 0.01."
        " Healthy runs reach 0.012 in single steps.",
        DOCUMENTED,
    )
    prob_error: scalars.Limit = default(
        1.05,
        "Mean ratio of probabilities. NeMo-RL's documentation recommends investigating at 1.05.",
        DOCUMENTED,
    )
    correlation: scalars.Ratio = default(
        0.98,
        "Correlation below this. Dense models have 0.999; a faulty mixture of experts had 0.6.",
        JUDGED,
    )
    kl: scalars.Limit = default(0.01, "Nats per token. 0.001 is healthy; verl warns at 0.1.", JUDGED)


class RolloutMismatchCritical(Section):
    """Any one of these for 5 steps in a row."""

    prob_diff: scalars.Ratio = default(0.02, "Twice the warning.", JUDGED)
    kl: scalars.Limit = default(
        0.1, "Nats per token, from verl's documentation of rollout correction.", DOCUMENTED
    )
    effective_sample_ratio: scalars.Ratio = default(
        0.3,
        "Effective sample size after weighting, as a share of the samples; from the same documentation.",
        DOCUMENTED,
    )


class RolloutMismatch(Block):
    """Rollout engine and trainer give the same tokens different probabilities."""

    warning: RolloutMismatchWarning | None = RolloutMismatchWarning()
    critical: RolloutMismatchCritical | None = RolloutMismatchCritical()


def _above(words: str, signal: str, key: str) -> Condition:
    return Condition(f"{words}, lowest of 5 steps:", over("min", signal, 5) > Limit(key), signal=signal)


def _below(words: str, signal: str, key: str) -> Condition:
    return Condition(f"{words}, highest of 5 steps:", over("max", signal, 5) < Limit(key), signal=signal)


DIFFERENCE, FACTOR = "difference of probabilities", "ratio of probabilities"
DIVERGENCE = "KL between engine and trainer in nats/token"

ROLLOUT_MISMATCH = (
    _alert(
        RolloutMismatch,
        "warning",
        summary="Rollout engine and trainer disagree on probabilities",
        action="compare precision, sampling settings and weight sync of engine and trainer",
        conditions=(
            _above(DIFFERENCE, "engine_prob_diff", "warning.prob_diff"),
            _above(FACTOR, "engine_prob_error", "warning.prob_error"),
            _below("correlation of probabilities", "engine_prob_correlation", "warning.correlation"),
            _above(DIVERGENCE, "kl_engine", "warning.kl"),
        ),
    ),
    _alert(
        RolloutMismatch,
        "critical",
        summary="Rollout engine and trainer are different policies",
        action="stop the run; check that the engine gets the new weights, then precision and settings",
        conditions=(
            _above(DIFFERENCE, "engine_prob_diff", "critical.prob_diff"),
            _above(DIVERGENCE, "kl_engine", "critical.kl"),
            _below(
                "effective share of the samples",
                "engine_effective_sample_ratio",
                "critical.effective_sample_ratio",
            ),
        ),
    ),
)


class StalenessWarning(Section):
    """Mean of 20 steps."""

    versions: scalars.Limit = default(
        8,
        "Weight versions. The loosest bound among trainers (prime-rl 8; AReaL and TRL 4). Not measured on a"
        " real run. For runs that are intentionally this far off-policy, raise it in `overrides`.",
        DOCUMENTED,
    )


class Staleness(Block):
    """Samples are stale when the trainer uses them."""

    warning: StalenessWarning | None = StalenessWarning()


STALENESS = _alert(
    Staleness,
    "warning",
    summary="Samples are stale when the trainer uses them",
    action="check whether rollouts or updates are slower; lower the number of batches in flight",
    conditions=(
        Condition(
            "age of samples, mean of 20 steps:",
            over("mean", "staleness", 20) > Limit("warning.versions"),
            signal="staleness",
        ),
    ),
    unit=" versions",
)

ALERTS = (*ROLLOUT_MISMATCH, STALENESS)

"""Alerts on KL divergences: to the reference, to a teacher, and between updates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from stepwatch.alerts.model.alert import JUDGED, RUNS, STEP, Alert, Condition
from stepwatch.alerts.model.expression import Limit, larger, size
from stepwatch.alerts.model.runs import LAST_GOOD, over, start, stddev, suffers
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

NATS = " nats/token"

_alert = partial(Alert, topic="kl")


class KLWarning(Section):
    """KLHigh: for 3 steps above the start by both limits of a pair."""

    above_start: scalars.Limit = default(
        0.5, "Nats per token above the start. Healthy runs stay below 0.26, unhealthy ones exceed 1.4.", RUNS
    )
    stddevs: scalars.Limit = default(
        3, "And this many standard deviations above it, for small batches.", JUDGED
    )
    above: scalars.Limit | None = default(
        None,
        "Absolute limit in nats per token. The 15 of textbooks would have missed every real explosion: the"
        " peak was 5.7.",
        RUNS,
    )


class KLCritical(Section):
    """KLExplosion: as the warning, with lower limits while the reward drops."""

    above_start: scalars.Limit = default(1, "Nats per token above the start, as for the warning.", JUDGED)
    stddevs: scalars.Limit = default(6, "And this many standard deviations above it.", JUDGED)
    above_start_when_dropping: scalars.Limit = default(
        0.5,
        "Or this far above the start while the reward drops: with two signals, a lower limit is enough.",
        JUDGED,
    )
    stddevs_when_dropping: scalars.Limit = default(3, "And this many standard deviations above it.", JUDGED)
    drop_ratio: scalars.Ratio = default(
        0.3, "While the reward is below its best by this share, and by 2 standard deviations.", JUDGED
    )
    above: scalars.Limit | None = default(None, "As for the warning.", RUNS)


class KL(Block):
    """KL to the reference model, in nats per token, 3 steps in a row above the run's start."""

    names: ClassVar[Mapping[str, str]] = {"warning": "KLHigh", "critical": "KLExplosion"}

    warning: KLWarning | None = KLWarning()
    critical: KLCritical | None = KLCritical()


def _risen(measured: str, signal: str, above_start: str, stddevs: str) -> Condition:
    """The signal is above its start for 3 steps."""
    return Condition(
        f"{measured}, lowest of 3 steps:",
        over("min", signal, 3) > start(signal) + larger(Limit(stddevs) * stddev(signal), Limit(above_start)),
        "from its start and standard deviation so far",
        signal=signal,
        legend="from its start",
    )


def _above(level: str) -> Condition:
    return Condition("KL, lowest of 3 steps:", over("min", "kl", 3) > Limit(f"{level}.above"), signal="kl")


KL_HIGH = _alert(
    KL,
    "warning",
    summary="KL to the reference is high",
    action="compare reward and entropy; raise the KL coefficient or lower the learning rate",
    conditions=(_risen("KL", "kl", "warning.above_start", "warning.stddevs"), _above("warning")),
    unit=NATS,
)

KL_EXPLOSION = _alert(
    KL,
    "critical",
    summary="KL to the reference is exploding",
    action="stop the run; resume from a checkpoint before the rise with a lower learning rate",
    conditions=(
        _risen("KL", "kl", "critical.above_start", "critical.stddevs"),
        Condition(
            "KL, lowest of 3 steps:",
            over("min", "kl", 3)
            > start("kl")
            + larger(
                Limit("critical.stddevs_when_dropping") * stddev("kl"),
                Limit("critical.above_start_when_dropping"),
            ),
            "from its start and standard deviation so far, while the reward drops",
            given=suffers("critical.drop_ratio", "0.3"),
        ),
        _above("critical"),
    ),
    unit=NATS,
    facts=(STEP, LAST_GOOD),
)


class KLSequenceWarning(Section):
    """KLSequenceHigh: for 3 steps above the start by both limits of a pair, per token."""

    above_start: scalars.Limit = default(0.5, "Nats per token above the start, as for KL.", JUDGED)
    stddevs: scalars.Limit = default(3, "And this many standard deviations above it, as for KL.", JUDGED)
    above: scalars.Limit | None = default(
        None,
        "Absolute limit in nats per response. The 10 of textbooks: all three healthy runs tested reach it"
        " by step 36.",
        RUNS,
    )


class KLSequence(Block):
    """KL to the reference, summed over the response (objective/kl), divided by the response length.

    Does not fire if no response length is logged.
    """

    names: ClassVar[Mapping[str, str]] = {"warning": "KLSequenceHigh"}

    warning: KLSequenceWarning | None = KLSequenceWarning()


SEQUENCE, LENGTH = "kl_sequence", "response_length"
_length = over("mean", LENGTH, 3)
_token_limit = start(SEQUENCE) / start(LENGTH) + larger(
    Limit("warning.stddevs") * stddev(SEQUENCE) / _length, Limit("warning.above_start")
)

KL_SEQUENCE_HIGH = _alert(
    KLSequence,
    "warning",
    summary="KL to the reference is high",
    action="compare reward and entropy; raise the KL coefficient or lower the learning rate",
    conditions=(
        Condition(
            "KL in nats/token, lowest of 3 steps:",
            over("min", SEQUENCE, 3) / _length > _token_limit,
            "from its start and standard deviation so far",
        ),
        Condition(
            "KL in nats/response, lowest of 3 steps:",
            over("min", SEQUENCE, 3) > Limit("warning.above"),
            signal=SEQUENCE,
        ),
    ),
)


class KLTeacherWarning(Section):
    """KLTeacherHigh: for 3 steps above the start by both limits of a pair."""

    above_start: scalars.Limit = default(
        1,
        "Nats per token above the start. Two healthy runs stay below 0.15; an unhealthy one reaches 1.4.",
        RUNS,
    )
    stddevs: scalars.Limit = default(6, "And this many standard deviations above it.", JUDGED)


class KLTeacher(Block):
    """KL to the teacher in distillation. It starts at any level and falls; a rise is a fault."""

    names: ClassVar[Mapping[str, str]] = {"warning": "KLTeacherHigh"}

    warning: KLTeacherWarning | None = KLTeacherWarning()


KL_TEACHER_HIGH = _alert(
    KLTeacher,
    "warning",
    summary="Policy is moving away from its teacher",
    action="lower the learning rate; check that the teacher scores the same tokens",
    conditions=(_risen("KL to the teacher", "kl_teacher", "warning.above_start", "warning.stddevs"),),
    unit=NATS,
)


class PolicyKLHighWarning(Section):
    """For 5 steps above both limits."""

    above: scalars.Limit = default(0.1, "Nats per token; on-policy training stays below 0.006.", RUNS)
    times_start: scalars.Limit = default(
        5, "And this many times the start: off-policy mixes start high.", JUDGED
    )


class PolicyKLHigh(Block):
    """KL to the policy that generated the samples (actor/ppo_kl)."""

    warning: PolicyKLHighWarning | None = PolicyKLHighWarning()


POLICY_KL_HIGH = _alert(
    PolicyKLHigh,
    "warning",
    summary="Updates move the policy too far",
    action="lower the learning rate or the number of updates per batch",
    conditions=(
        Condition(
            "KL between updates, lowest of 5 steps:",
            over("min", "policy_kl", 5)
            > larger(Limit("warning.times_start") * size(start("policy_kl")), Limit("warning.above")),
            "from its start",
            signal="policy_kl",
        ),
    ),
    unit=NATS,
)

ALERTS = (KL_HIGH, KL_EXPLOSION, KL_SEQUENCE_HIGH, KL_TEACHER_HIGH, POLICY_KL_HIGH)

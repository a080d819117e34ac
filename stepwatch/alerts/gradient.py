"""Alerts on gradients, on the updates of policy and critic, and on values that are not finite."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import JUDGED, RUNS, SIMULATED, STEP, WHOLE, Alert, Condition, Fact
from stepwatch.alerts.model.expression import Limit, larger
from stepwatch.alerts.model.runs import metric, over
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

_alert = partial(Alert, topic="gradient")


class NonFiniteWarning(Section):
    """Logged steps in a row."""

    steps: scalars.Count = default(1, "Steps in a row. Trainers often skip a single bad step.", JUDGED)


class NonFiniteCritical(Section):
    """As the warning."""

    steps: scalars.Count = default(3, "Steps in a row: three are not chance.", JUDGED)


class NonFinite(Block):
    """NaN or Inf in reward, KL, entropy, losses, gradient norm or length."""

    warning: NonFiniteWarning | None = NonFiniteWarning()
    critical: NonFiniteCritical | None = NonFiniteCritical()


NON_FINITE = tuple(
    _alert(
        NonFinite,
        level,
        summary="NaN or Inf in the log",
        action=action,
        conditions=(
            Condition(
                "steps in a row with NaN or Inf:",
                metric("rl_nonfinite_streak_steps") >= Limit(f"{level}.steps"),
                signal="nonfinite_streak_steps",
            ),
        ),
        style=WHOLE,
        facts=(
            Fact("sort_desc(max by(signal)(rl_nonfinite_streak_steps{%s})>0)", "; {{.Labels.signal}}"),
            STEP,
        ),
        others=False,
    )
    for level, action in (
        ("warning", "check whether the next steps are finite; if not, check loss scale and learning rate"),
        (
            "critical",
            "stop the run; resume from the last checkpoint before these steps with a lower learning rate",
        ),
    )
)


class GradNormHighWarning(Section):
    """Above the usual level of 64 steps by both limits of a pair.

    The level is the mean of the nonzero values, each capped at 4 times that mean. So steps without a gradient
    do not lower it, and a spike does not raise it for the whole window: after a spike of 10,000 times the
    level, a norm that grew by 10 % a step fired after 27 steps (35 with the plain mean), and one that rose
    tenfold fired after 3 steps (never with the plain mean).
    """

    times_level: scalars.Limit = default(
        4,
        "Multiple of that level. Use at most 4.8, which steady growth of 10 % a step cannot exceed. Healthy"
        " runs reach 3.1 times their median.",
        RUNS,
    )
    stddevs: scalars.Limit = default(
        4,
        "And this many step-to-step standard deviations above it: with tiny batches the norm jumps. Causes"
        " no delay for norms that grow by 10 % a step.",
        SIMULATED,
    )
    above: scalars.Limit | None = default(
        None,
        "Absolute limit for the same median. Levels of healthy runs range from 0.003 to 8000, so a value"
        " fits only one setup.",
        RUNS,
    )


class GradNormHigh(Block):
    """Gradient norm, median of 5 steps."""

    warning: GradNormHighWarning | None = GradNormHighWarning()


_level = over("level", "grad_norm", 64)

GRAD_NORM_HIGH = _alert(
    GradNormHigh,
    "warning",
    summary="Gradient norm far above its usual level",
    action="compare loss and KL; lower the learning rate or clip gradients harder",
    conditions=(
        Condition(
            "gradient norm, median of 5 steps:",
            over("median", "grad_norm", 5)
            > larger(
                Limit("warning.times_level") * _level,
                _level + Limit("warning.stddevs") * over("spread", "grad_norm", 64),
            ),
            "from the level of 64 steps",
            signal="grad_norm",
        ),
        Condition(
            "gradient norm, median of 5 steps:",
            over("median", "grad_norm", 5) > Limit("warning.above"),
            signal="grad_norm",
        ),
    ),
)


class ClipFractionHighWarning(Section):
    """For 5 steps in a row."""

    above_ratio: scalars.Ratio = default(
        0.5,
        "Textbooks treat more than half as unhealthy; 23 real runs stay below 0.11. GSPO clips a hundred"
        " times as much as GRPO: disable this alert for such runs.",
        JUDGED,
    )


class ClipFractionHigh(Block):
    """Share of tokens whose update is clipped."""

    warning: ClipFractionHighWarning | None = ClipFractionHighWarning()


CLIP_FRACTION_HIGH = _alert(
    ClipFractionHigh,
    "warning",
    summary="Most policy updates are clipped",
    action="lower the learning rate or the number of updates per batch; check the staleness of samples",
    conditions=(
        Condition(
            "clipped tokens, lowest of 5 steps:",
            over("min", "policy_clip_ratio", 5) > Limit("warning.above_ratio"),
            signal="policy_clip_ratio",
        ),
    ),
)


class PolicyLossPositive(Block):
    """The policy loss is above 0 in each of 20 steps."""

    enabled: scalars.Switch = default(False, "Off: on 10 of 19 healthy runs the loss was above 0.")
    severity: scalars.Severity = default("info", "Shown on dashboards only: not a fault by itself.")


POLICY_LOSS_POSITIVE = _alert(
    PolicyLossPositive,
    summary="Policy loss stays above 0",
    action="compare reward and KL; if both are healthy, no action is needed",
    conditions=(
        Condition(
            "policy loss, lowest of 20 steps:", over("min", "policy_loss", 20) > 0, signal="policy_loss"
        ),
    ),
)


class CriticDivergedWarning(Section):
    """Explained variance or value loss, once there are enough records."""

    explained_ratio: scalars.Ratio = default(
        0.0,
        "Explained variance below this in each of 20 steps: at 0 the critic is no better than a constant."
        " The one healthy run that logs it falls below 0 for single steps.",
        JUDGED,
    )
    times_level: scalars.Limit = default(
        5,
        "Or the value loss, median of 5 steps: multiple of the level of 64 steps, as in GradNormHigh. A"
        " loss that is sometimes near 0 lowers a median: a healthy run then warned five times. With the"
        " level, four healthy runs never warned.",
        RUNS,
    )
    records: scalars.Count = default(
        50,
        "And this many logged records: a new critic's loss falls a hundredfold in its first tens of steps.",
        JUDGED,
    )


class CriticDiverged(Block):
    """The critic no longer predicts the returns."""

    warning: CriticDivergedWarning | None = CriticDivergedWarning()


CRITIC_DIVERGED = _alert(
    CriticDiverged,
    "warning",
    summary="Critic no longer predicts the returns",
    action="lower the critic's learning rate, or clip its loss; compare returns and value loss",
    conditions=(
        Condition(
            "explained variance, highest of 20 steps:",
            over("max", "explained_variance", 20) < Limit("warning.explained_ratio"),
            signal="explained_variance",
        ),
        Condition(
            "value loss, median of 5 steps:",
            over("median", "value_loss", 5) > Limit("warning.times_level") * over("level", "value_loss", 64),
            "from the level of 64 steps",
            signal="value_loss",
        ),
    ),
    given=metric("rl_records_total") >= Limit("warning.records"),
)

ALERTS = (*NON_FINITE, GRAD_NORM_HIGH, CLIP_FRACTION_HIGH, POLICY_LOSS_POSITIVE, CRITIC_DIVERGED)

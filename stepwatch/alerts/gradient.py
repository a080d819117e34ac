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
        ("warning", "see whether the next steps are finite; if not, look at loss scale and learning rate"),
        ("critical", "stop the run; resume from the last checkpoint before with a lower learning rate"),
    )
)


class GradNormHighWarning(Section):
    """Both of a pair of limits, against the usual level of 64 steps.

    The level is their mean without zeros, where no value counts for more than 4 times that mean. So steps
    without a gradient do not lower it, and a spike does not hold it up until it leaves the window: after one
    spike of 10,000 times, a norm that grew by 10 % a step fired after 35 steps with the plain mean and after
    27 with this, and one that rose tenfold never, and after 3.
    """

    times_level: scalars.Limit = default(
        4,
        "Times that level. At most 4.8, which steady growth of 10 % a step cannot exceed; healthy runs reach"
        " 3.1 times their median.",
        RUNS,
    )
    stddevs: scalars.Limit = default(
        4,
        "And this many standard deviations from step to step above it: in a tiny batch the norm jumps by"
        " itself. Costs no step on norms that grow by 10 % a step.",
        SIMULATED,
    )
    above: scalars.Limit | None = default(
        None,
        "An absolute limit for the same median. Levels of healthy runs go from 0.003 to 8000, so it fits one"
        " setup only.",
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
            "gradient norm, median of 5 steps,",
            over("median", "grad_norm", 5)
            > larger(
                Limit("warning.times_level") * _level,
                _level + Limit("warning.stddevs") * over("spread", "grad_norm", 64),
            ),
            "from the level of 64",
            signal="grad_norm",
        ),
        Condition(
            "gradient norm, median of 5 steps,",
            over("median", "grad_norm", 5) > Limit("warning.above"),
            signal="grad_norm",
        ),
    ),
)


class ClipFractionHighWarning(Section):
    """For 5 steps in a row."""

    above_ratio: scalars.Ratio = default(
        0.5,
        "Textbooks call more than half sick; 23 real runs stay below 0.11. GSPO clips a hundred times as much"
        " as GRPO: switch it off for such runs.",
        JUDGED,
    )


class ClipFractionHigh(Block):
    """Share of tokens whose update is clipped."""

    warning: ClipFractionHighWarning | None = ClipFractionHighWarning()


CLIP_FRACTION_HIGH = _alert(
    ClipFractionHigh,
    "warning",
    summary="Most policy updates are clipped",
    action="lower the learning rate or the number of updates per batch; check how old the samples are",
    conditions=(
        Condition(
            "clipped tokens, lowest of 5 steps,",
            over("min", "policy_clip_ratio", 5) > Limit("warning.above_ratio"),
            signal="policy_clip_ratio",
        ),
    ),
)


class PolicyLossPositive(Block):
    """The loss of the policy is above 0 in each of 20 steps."""

    enabled: scalars.Switch = default(False, "Off: on 10 of 19 healthy runs the loss was above 0.")
    severity: scalars.Severity = default("info", "For pages only: it is not a fault by itself.")


POLICY_LOSS_POSITIVE = _alert(
    PolicyLossPositive,
    summary="Policy loss stays above 0",
    action="compare reward and KL: if they are well, no action is needed",
    conditions=(
        Condition(
            "policy loss, lowest of 20 steps,", over("min", "policy_loss", 20) > 0, signal="policy_loss"
        ),
    ),
)


class CriticDivergedWarning(Section):
    """Explained variance or value loss, once there are enough records."""

    explained_ratio: scalars.Ratio = default(
        0.0,
        "Explained variance below this in each of 20 steps: at 0 a constant would guess as well. The one"
        " healthy run that logs it falls below 0 for single steps.",
        JUDGED,
    )
    times_level: scalars.Limit = default(
        5,
        "Or the value loss, median of 5 steps: times the level of 64, as in GradNormHigh. A loss that is near"
        " 0 now and then lowers a median, and a healthy run then warned five times; with the level, four"
        " healthy runs never did.",
        RUNS,
    )
    records: scalars.Count = default(
        50, "And this many logged records: a new critic's loss falls a hundredfold in its first tens.", JUDGED
    )


class CriticDiverged(Block):
    """The critic no longer follows the returns."""

    warning: CriticDivergedWarning | None = CriticDivergedWarning()


CRITIC_DIVERGED = _alert(
    CriticDiverged,
    "warning",
    summary="Critic no longer follows the returns",
    action="lower the critic's learning rate, or clip its loss; compare returns and value loss",
    conditions=(
        Condition(
            "explained variance, highest of 20 steps,",
            over("max", "explained_variance", 20) < Limit("warning.explained_ratio"),
            signal="explained_variance",
        ),
        Condition(
            "value loss, median of 5 steps,",
            over("median", "value_loss", 5) > Limit("warning.times_level") * over("level", "value_loss", 64),
            "from the level of 64",
            signal="value_loss",
        ),
    ),
    given=metric("rl_records_total") >= Limit("warning.records"),
)

ALERTS = (*NON_FINITE, GRAD_NORM_HIGH, CLIP_FRACTION_HIGH, POLICY_LOSS_POSITIVE, CRITIC_DIVERGED)

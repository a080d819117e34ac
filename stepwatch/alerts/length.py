"""Alerts on how long responses are, and how many are cut at the length limit."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import JUDGED, RUNS, WHOLE, Alert, Condition
from stepwatch.alerts.model.expression import Expression, Limit, larger
from stepwatch.alerts.model.runs import lost, over, peak, start, suffers
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

LENGTH, TRUNCATED = "response_length", "truncated_ratio"

_alert = partial(Alert, topic="length")


class LengthRunawayWarning(Section):
    """For 5 steps far above the start, while responses are truncated or the reward drops."""

    times_start: scalars.Limit = default(
        2,
        "Multiple of the start. Growth alone never fires: responses get longer as a model learns to reason.",
        JUDGED,
    )
    truncated_rise_ratio: scalars.Ratio = default(
        0.15,
        "And the truncated share rose by this much. In a healthy run it rose by 0.11 while the run learned.",
        RUNS,
    )
    drop_ratio: scalars.Ratio = default(
        0.1,
        "Or the reward is below its best by this share and by 2 standard deviations: if truncation is not"
        " logged, only the reward shows whether growth helps.",
        JUDGED,
    )
    above: scalars.Limit | None = default(
        None, "Absolute limit in tokens, regardless of truncation. Lengths depend on the task.", JUDGED
    )


class LengthRunaway(Block):
    """Responses grow into the length limit, or while the reward drops."""

    warning: LengthRunawayWarning | None = LengthRunawayWarning()


def _growth(baseline: str, given: Expression) -> Condition:
    return Condition(
        "response length, lowest of 5 steps:",
        over("min", LENGTH, 5) > Limit("warning.times_start") * start(LENGTH),
        baseline,
        given,
        signal=LENGTH,
    )


LENGTH_RUNAWAY = _alert(
    LengthRunaway,
    "warning",
    summary="Responses grow into the length limit",
    action="read the longest samples; if they repeat themselves, penalize length or lower the limit",
    conditions=(
        _growth(
            "from its start, more truncated",
            over("mean", TRUNCATED, 5) - start(TRUNCATED) > Limit("warning.truncated_rise_ratio"),
        ),
        _growth("from its start while the reward drops", suffers("warning.drop_ratio")),
        Condition(
            "response length, lowest of 5 steps:",
            over("min", LENGTH, 5) > Limit("warning.above"),
            signal=LENGTH,
        ),
    ),
    unit=" tokens",
    style=WHOLE,
)


class LengthCollapseWarning(Section):
    """A sudden fall from the last 64 steps, or a slow fall from the peak while the reward drops."""

    median_ratio: scalars.Ratio = default(
        0.25, "Sudden fall: share of the median of the last 64 steps.", JUDGED
    )
    peak_ratio: scalars.Ratio = default(
        0.1, "Slow fall: share of the peak, together with `drop_ratio`.", JUDGED
    )
    drop_ratio: scalars.Ratio = default(
        0.1,
        "And the reward is this share below its best. Responses of agents that succeed get 8 times shorter"
        " while the reward rises.",
        RUNS,
    )


class LengthCollapseCritical(Section):
    """As the warning, while the reward drops."""

    drop_ratio: scalars.Ratio = default(
        0.3,
        "Share of the best reward, and 2 standard deviations, together with a limit of the warning.",
        JUDGED,
    )


class LengthCollapse(Block):
    """Responses have become very short."""

    warning: LengthCollapseWarning | None = LengthCollapseWarning()
    critical: LengthCollapseCritical | None = LengthCollapseCritical()


def _collapse(level: str, summary: str, action: str, given: Expression | None = None) -> Alert:
    return _alert(
        LengthCollapse,
        level,
        summary=summary,
        action=action,
        conditions=(
            Condition(
                "response length, median of 5 steps:",
                over("median", LENGTH, 5) < Limit("warning.median_ratio") * over("median", LENGTH, 64),
                "from the median of 64 steps",
                signal=LENGTH,
                legend="from the median",
            ),
            Condition(
                "response length, median of 5 steps:",
                over("median", LENGTH, 5) < Limit("warning.peak_ratio") * peak(LENGTH),
                "from its peak",
                lost("warning.drop_ratio"),
                LENGTH,
            ),
        ),
        given=given,
        unit=" tokens",
        style=WHOLE,
    )


LENGTH_COLLAPSE = (
    _collapse(
        "warning",
        "Responses collapsed in length",
        "read samples: empty responses, early stop tokens, or a scorer that rewards brevity",
    ),
    _collapse(
        "critical",
        "Responses collapsed in length and the reward drops",
        "stop the run or resume from an earlier checkpoint; then read samples of the last steps",
        suffers("critical.drop_ratio", "0.3"),
    ),
)


class TruncationWarning(Section):
    """More truncated responses than at the start, or nearly all responses truncated."""

    mean_rise_ratio: scalars.Ratio = default(
        0.3,
        "Rise over the start, mean of 10 steps. A high level is not a fault: runs that start at 0.84 end at"
        " 0.03.",
        RUNS,
    )
    always_above_ratio: scalars.Ratio = default(
        0.9,
        "Or this share in each of 10 steps: hardly any response finishes. Healthy runs start at up to 0.84.",
        RUNS,
    )


class TruncationCritical(Section):
    """For 3 steps above both limits, while the reward drops."""

    above_ratio: scalars.Ratio = default(0.5, "This share is truncated: most responses.", JUDGED)
    rise_ratio: scalars.Ratio = default(0.3, "And the share rose by this much over the start.", JUDGED)
    drop_ratio: scalars.Ratio = default(
        0.3, "And the reward is below its best by this share, and by 2 standard deviations.", JUDGED
    )


class Truncation(Block):
    """Responses are truncated at the length limit; limits are shares of all responses."""

    warning: TruncationWarning | None = TruncationWarning()
    critical: TruncationCritical | None = TruncationCritical()


TRUNCATION = (
    _alert(
        Truncation,
        "warning",
        summary="Truncated responses increasing",
        action="read truncated samples; raise the length limit, or penalize length",
        conditions=(
            Condition(
                "share of truncated responses, mean of 10 steps:",
                over("mean", TRUNCATED, 10) > start(TRUNCATED) + Limit("warning.mean_rise_ratio"),
                "from the start",
                signal=TRUNCATED,
            ),
            Condition(
                "share of truncated responses, lowest of 10 steps:",
                over("min", TRUNCATED, 10) >= Limit("warning.always_above_ratio"),
                signal=TRUNCATED,
            ),
        ),
    ),
    _alert(
        Truncation,
        "critical",
        summary="Most responses are truncated and the reward drops",
        action="stop the run; raise the length limit or penalize length, and resume from before the rise",
        conditions=(
            Condition(
                "share of truncated responses, lowest of 3 steps:",
                over("min", TRUNCATED, 3)
                > larger(start(TRUNCATED) + Limit("critical.rise_ratio"), Limit("critical.above_ratio")),
                "while the reward drops",
                suffers("critical.drop_ratio", "0.3"),
                TRUNCATED,
            ),
        ),
    ),
)

ALERTS = (LENGTH_RUNAWAY, *LENGTH_COLLAPSE, *TRUNCATION)

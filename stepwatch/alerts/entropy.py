"""Alerts on the policy's entropy: it collapses or explodes."""

from __future__ import annotations

from functools import partial

from stepwatch.alerts.model.alert import JUDGED, RUNS, Alert, Condition
from stepwatch.alerts.model.expression import Expression, Limit, larger, smaller
from stepwatch.alerts.model.runs import metric, over, peak, solved, start, suffers
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

ENTROPY = "entropy"
NATS = " nats/token"

_alert = partial(Alert, topic="entropy")


class EntropyCollapseWarning(Section):
    """A small share of the peak and a low level; higher limits apply if the reward drops or stagnates."""

    peak_ratio: scalars.Ratio = default(0.05, "Share of the peak, together with `low`.", JUDGED)
    low: scalars.Limit = default(
        0.02,
        "Nats per token. A run that starts at 7 nats still learns well at 0.2, a thirtieth. Healthy runs"
        " with a rising reward end at 0.026 or above; unhealthy ones fall to 0.002.",
        RUNS,
    )
    peak_ratio_when_dropping: scalars.Ratio = default(
        0.1, "The same while the reward is below its best, or has had no new best for a long time.", JUDGED
    )
    low_when_dropping: scalars.Limit = default(0.05, "And nats per token, in the same case.", JUDGED)
    below: scalars.Limit = default(
        0.01, "Nats per token, regardless of the peak. Healthy runs end at 0.026 or above.", RUNS
    )
    drop_ratio: scalars.Ratio = default(
        0.1,
        "Below its best by this share and by 2 standard deviations. The reward of a healthy run at 0.03"
        " nats fell by 0.1 of its best, which was 1.1 standard deviations.",
        RUNS,
    )
    records: scalars.Count = default(32, "No new best for this many logged records.", JUDGED)
    run_ratio: scalars.Ratio = default(
        0.5, "And for this share of the run: longer runs get more time.", JUDGED
    )
    solved_ratio: scalars.Ratio = default(
        0.9,
        "Does not fire where the reward has reached this share of the highest samples, or varies by less"
        " than 3 % in 10 steps at its best: on a solved task, low entropy is normal.",
        JUDGED,
    )


class EntropyCollapse(Block):
    """The policy has become nearly deterministic.

    Never critical: with a good reward no page is needed; with a bad one RewardCollapse pages.
    """

    warning: EntropyCollapseWarning | None = EntropyCollapseWarning()


_smoothed = metric("rl_ewma_max_over_steps", signal=ENTROPY, alpha="0.2", steps="10")
_records = metric("rl_records_since_best", signal="reward")


def _below_peak(
    ratio: str, low: str, baseline: str, given: Expression | None = None, legend: str = ""
) -> Condition:
    return Condition(
        "smoothed entropy, highest of 10 steps:",
        _smoothed < smaller(Limit(ratio) * peak(ENTROPY), Limit(low)),
        baseline,
        given,
        signal=ENTROPY,
        legend=legend,
    )


ENTROPY_COLLAPSE = _alert(
    EntropyCollapse,
    "warning",
    summary="Entropy collapsed",
    action="read samples; if all responses are the same, raise the temperature or the entropy bonus",
    conditions=(
        Condition(
            "entropy, highest of 10 steps:", over("max", ENTROPY, 10) < Limit("warning.below"), signal=ENTROPY
        ),
        _below_peak("warning.peak_ratio", "warning.low", "from its peak"),
        _below_peak(
            "warning.peak_ratio_when_dropping",
            "warning.low_when_dropping",
            "from its peak while the reward does not rise",
            suffers("warning.drop_ratio")
            | (
                (_records >= Limit("warning.records"))
                & (_records >= Limit("warning.run_ratio") * metric("rl_records_seen"))
            ),
            legend="flat reward",
        ),
    ),
    sparing=solved("warning.solved_ratio"),
    unit=NATS,
)


class EntropyExplosionWarning(Section):
    """For 3 steps above both limits."""

    times_start: scalars.Limit = default(
        2, "Times the start. Healthy runs reach 5, but from a small start.", RUNS
    )
    above_start: scalars.Limit = default(
        0.5, "And nats per token above the start. Healthy runs gain up to 0.5, unhealthy ones more.", RUNS
    )


class EntropyExplosionCritical(Section):
    """As the warning, while the reward drops."""

    drop_ratio: scalars.Ratio = default(
        0.3,
        "Share of the best reward, and 2 standard deviations, together with both limits of the warning.",
        JUDGED,
    )


class EntropyExplosion(Block):
    """The policy has become random."""

    warning: EntropyExplosionWarning | None = EntropyExplosionWarning()
    critical: EntropyExplosionCritical | None = EntropyExplosionCritical()


def _explosion(
    level: str, summary: str, action: str, baseline: str, given: Expression | None = None
) -> Alert:
    return _alert(
        EntropyExplosion,
        level,
        summary=summary,
        action=action,
        conditions=(
            Condition(
                "entropy, lowest of 3 steps:",
                over("min", ENTROPY, 3)
                > larger(
                    Limit("warning.times_start") * start(ENTROPY),
                    start(ENTROPY) + Limit("warning.above_start"),
                ),
                baseline,
                given,
                signal=ENTROPY,
            ),
        ),
        unit=NATS,
    )


ENTROPY_EXPLOSION = (
    _explosion(
        "warning",
        "Entropy is exploding",
        "read samples; lower the temperature or the entropy bonus",
        "from its start",
    ),
    _explosion(
        "critical",
        "Entropy is exploding and the reward drops",
        "stop the run; resume from a checkpoint before the rise with a lower learning rate",
        "from its start while the reward drops",
        suffers("critical.drop_ratio", "0.3"),
    ),
)

ALERTS = (ENTROPY_COLLAPSE, *ENTROPY_EXPLOSION)

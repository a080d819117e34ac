"""Alerts on the reward, the validation score and the learning signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from stepwatch.alerts.model.alert import COMPUTED, JUDGED, RUNS, SIMULATED, STEP, WHOLE, Alert, Condition
from stepwatch.alerts.model.expression import Expression, Limit, larger, size
from stepwatch.alerts.model.runs import (
    LAST_GOOD,
    REWARD,
    best,
    least_drawdown,
    lost,
    metric,
    over,
    smoothed,
    solved,
    start,
    stddev,
)
from stepwatch.schema import scalars
from stepwatch.schema.section import Block, Section, default

_alert = partial(Alert, topic="reward")


class RewardWarning(Section):
    """RewardDrop: the smoothed reward is below its best by both limits of a pair."""

    stddevs: scalars.Limit = default(
        2.5,
        "Standard deviations below the best, smoothed over about 5 steps. Six times the noise of that"
        " curve. One of 139 healthy runs exceeded 2.46, because of a real loss. Use 3 for heavy-tailed"
        " rewards.",
        RUNS,
    )
    slow_stddevs: scalars.Limit = default(
        2,
        "The same for a slow fall, smoothed over about 20 steps: 9 times the noise of that curve.",
        COMPUTED,
    )
    drop_ratio: scalars.Ratio = default(
        0.1,
        "And at least this share of the best: a saturated reward with little noise does not fire.",
        JUDGED,
    )
    quick_stddevs: scalars.Limit = default(
        3.5,
        "Or for 3 steps of a less smoothed curve: 6 times its noise, together with `quick_drop_ratio`.",
        COMPUTED,
    )
    quick_drop_ratio: scalars.Ratio = default(
        0.25,
        "And at least this share of the best. It fired on none of 120 simulated runs of 1500 steps, heavy"
        " tails included, except with autocorrelated noise (0.6), where the limits above fire as well.",
        SIMULATED,
    )
    below_mean_ratio: scalars.Ratio | None = default(
        None,
        "Absolute limit: this share below the mean of the last 32 steps, for 5 steps in a row, regardless"
        " of noise. Tutorials recommend 0.2, which is one standard deviation for a batch of 8 and eight for"
        " a batch of 512. On real runs it found 3 of 21 unhealthy ones, with 58 false alarms.",
        RUNS,
    )


class RewardCritical(Section):
    """RewardCollapse: as the warning, and most of the run's gain is lost as well."""

    stddevs: scalars.Limit = default(
        4, "Healthy runs reach at most 2.99; the mildest collapse that had to page reached 6.4.", RUNS
    )
    drop_ratio: scalars.Ratio = default(0.3, "Nearly a third of the best must be lost before a page.", JUDGED)
    gain_drop_ratio: scalars.Ratio = default(
        0.6,
        "And this share of the run's gain over its start. A healthy run with a reward model fell from 4.3"
        " to 2, by 6.5 standard deviations and 51 to 55 % of its gain, and recovered; unhealthy runs lose"
        " 180 % or more. The cost: a reward that is halved while it rises from 0 warns, but pages in only"
        " half of the runs.",
        RUNS,
    )
    quick_stddevs: scalars.Limit = default(
        4,
        "Or within 3 steps: 7 times the noise of that curve. It fired 2 to 3 steps earlier on each of four"
        " unhealthy runs, and on no healthy run.",
        RUNS,
    )
    quick_drop_ratio: scalars.Ratio = default(0.5, "And at least this share of the best.", JUDGED)
    below_mean_ratio: scalars.Ratio | None = default(None, "As for the warning.", RUNS)


class Reward(Block):
    """The reward fell from its best and stays low, or is dead: no positive sample in 20 steps."""

    names: ClassVar[Mapping[str, str]] = {"warning": "RewardDrop", "critical": "RewardCollapse"}

    warning: RewardWarning | None = RewardWarning()
    critical: RewardCritical | None = RewardCritical()


def _fall(fall: Expression, *limits: Expression, measured: str, given: Expression | None = None) -> Condition:
    """The reward is below its best by more than all of the limits."""
    return Condition(measured, fall > larger(*limits), "from its best and standard deviation so far", given)


def _long_fall(fall: Expression, *limits: Expression) -> Condition:
    """The same for 5 steps. Dashboards draw only this limit: those of other spans would hide the curve."""
    condition = _fall(fall, *limits, measured="reward below its best for 5 steps by")
    return replace(condition, signal=REWARD, line=("<", best() - larger(*limits)), legend="from its best")


def _below_mean(level: str) -> Condition:
    mean = over("mean", REWARD, 32)
    limit = mean - Limit(f"{level}.below_mean_ratio") * size(mean)
    return Condition(
        "reward, highest of 5 steps:", over("max", REWARD, 5) < limit, "from its mean", None, REWARD
    )


def _dead(steps: int) -> tuple[Condition, ...]:
    """No positive reward in the last steps, and all rewards equal."""
    return tuple(
        Condition(
            f"{words}, highest of {steps} steps:",
            over("max", signal, steps) <= 0,
            "all equal",
            over("range", signal, steps).equals(0),
        )
        for signal, words in ((REWARD, "reward"), ("reward_max", "best sample"))
    )


_gained = best() - start(REWARD)

REWARD_DROP = _alert(
    Reward,
    "warning",
    summary="Reward dropped from its best",
    action="read samples of the last steps; compare KL, entropy and length on the dashboard",
    conditions=(
        _long_fall(
            least_drawdown("0.3", 5),
            Limit("warning.stddevs") * stddev(),
            Limit("warning.drop_ratio") * size(best()),
        ),
        _fall(
            least_drawdown("0.1", 20),
            Limit("warning.slow_stddevs") * stddev(),
            measured="reward below its best for 20 steps by",
            given=least_drawdown("0.3", 5) > Limit("warning.drop_ratio") * size(best()),
        ),
        _fall(
            least_drawdown("0.5", 3),
            Limit("warning.quick_stddevs") * stddev(),
            Limit("warning.quick_drop_ratio") * size(best()),
            measured="reward below its best for 3 steps by",
        ),
        _below_mean("warning"),
    ),
)

REWARD_COLLAPSE = _alert(
    Reward,
    "critical",
    summary="Reward collapsed",
    action="stop the run or resume from the best checkpoint; then read samples of the last steps",
    conditions=(
        _long_fall(
            least_drawdown("0.3", 5),
            Limit("critical.stddevs") * stddev(),
            Limit("critical.drop_ratio") * size(best()),
            Limit("critical.gain_drop_ratio") * _gained,
        ),
        _fall(
            least_drawdown("0.5", 3),
            Limit("critical.quick_stddevs") * stddev(),
            Limit("critical.quick_drop_ratio") * size(best()),
            Limit("critical.gain_drop_ratio") * _gained,
            measured="reward below its best for 3 steps by",
        ),
        *_dead(20),
        _below_mean("critical"),
    ),
    facts=(STEP, LAST_GOOD),
)


class RewardStagnationWarning(Section):
    """No new best for a long time. A slow gain, such as 0.01 in 500 steps, can fire as well."""

    steps: scalars.Count = default(
        300,
        "Training steps since the last new best. With 210, healthy runs that gain slowly warn more often.",
        RUNS,
    )
    run_ratio: scalars.Ratio = default(
        0.5, "And this share of the run so far: longer runs get more time.", JUDGED
    )
    records: scalars.Count = default(
        64, "And this many logged records, for runs that log only every 10th step.", JUDGED
    )
    solved_ratio: scalars.Ratio = default(
        0.9,
        "Does not fire where the reward has reached this share of the highest samples, or varies by less"
        " than 3 % in 10 steps at its best: that run has converged.",
        JUDGED,
    )


class RewardStagnation(Block):
    """No new best reward for a long time."""

    warning: RewardStagnationWarning | None = RewardStagnationWarning()


_since_best = metric("rl_steps_since_best", signal=REWARD)

REWARD_STAGNATION = _alert(
    RewardStagnation,
    "warning",
    summary="Reward has stopped improving",
    action="stop the run if it has converged; if it is stuck, read samples and look at entropy",
    conditions=(
        Condition(
            "steps since the best reward:",
            _since_best
            >= larger(Limit("warning.run_ratio") * metric("rl_steps_seen"), Limit("warning.steps")),
            "a share of the run, at least `steps`",
            (metric("rl_records_seen") >= Limit("warning.records"))
            & over("mean", REWARD, 20),  # which exists once windows are full again after a resume
        ),
    ),
    sparing=solved("warning.solved_ratio")
    | (over("mean", "reward_std", 20) < 0.05 * over("mean", REWARD, 20)).unless(
        best() - smoothed(REWARD) > 0.1 * size(best())
    ),
    style=WHOLE,
)


class NoLearningSignalWarning(Section):
    """The reward is dead, constant without having risen, stuck at a floor, or equal within prompts."""

    zero_std_ratio: scalars.Ratio = default(
        0.95,
        "Share of prompts whose responses all get the same score. Healthy runs that solve 90 % reach 0.94.",
        RUNS,
    )
    drop_ratio: scalars.Ratio = default(0.1, "And the reward is this share below its best.", JUDGED)
    range_ratio: scalars.Ratio = default(
        0.1,
        "Stuck: over 32 steps, a reward of 0 or less varied by at most this share of its magnitude.",
        JUDGED,
    )
    ceiling: scalars.Limit | None = default(
        None,
        "The highest possible reward: a constant reward at this level means success. If unset, a reward"
        " that rose and stays at its best has reached it; a reward that is constant from the first step on"
        " has not: a scorer that always returns 1.0 looks like a solved task.",
        JUDGED,
    )


class NoLearningSignal(Block):
    """The rewards contain no learning signal."""

    warning: NoLearningSignalWarning | None = NoLearningSignalWarning()


_constant = Condition("reward, range of 20 steps:", over("range", REWARD, 20).equals(0), "all equal")
_varies = (over("mean", "reward_std", 20) > 0) | (over("range", "reward_max", 20) > 0)
_highest = over("max", REWARD, 20)

NO_LEARNING_SIGNAL = _alert(
    NoLearningSignal,
    "warning",
    summary="No learning signal in the rewards",
    action="check the scorer on a few samples; check whether the prompts are too hard or too easy",
    conditions=(
        *_dead(10),
        replace(
            _constant,
            sparing=(_highest > start(REWARD)).unless(lost("warning.drop_ratio")) | _varies,
            unset="warning.ceiling",
        ),
        replace(_constant, given=_highest < Limit("warning.ceiling"), sparing=_varies),
        Condition(
            "reward, range of 32 steps:",
            over("range", REWARD, 32) <= Limit("warning.range_ratio") * size(over("median", REWARD, 32)),
            "a share of its median; never above 0",
            over("max", REWARD, 32) <= 0,
        ),
        Condition(
            "prompts whose responses all score the same, mean of 20 steps:",
            over("mean", "zero_std_ratio", 20) >= Limit("warning.zero_std_ratio"),
            "while the reward is below its best",
            lost("warning.drop_ratio"),
            "zero_std_ratio",
        ),
    ),
)


class ValidationDropWarning(Section):
    """Both of the last two evaluations are below the best level that two in a row reached."""

    drop: scalars.Limit = default(
        0.03,
        "In units of the score, which is assumed to be between 0 and 1. With 1319 questions that is twice"
        " the standard error (0.0137). A healthy run fell by as much, but by fewer standard deviations.",
        RUNS,
    )
    stddevs: scalars.Limit = default(
        5,
        "And this many standard deviations. The best is a maximum of many evaluations, so noise alone falls"
        " far below it: of simulated flat runs with 43 evaluations, 30 % fall by 2.5 and 0.3 % by 5.",
        SIMULATED,
    )


class ValidationDropCritical(Section):
    """As the warning."""

    drop: scalars.Limit = default(0.1, "A tenth of all questions.", JUDGED)
    stddevs: scalars.Limit = default(
        10,
        "Slow drift can be noise as well: of runs with autocorrelated errors (0.6), 1 % fall by 9.4 within"
        " 200 evaluations.",
        SIMULATED,
    )


class ValidationDrop(Block):
    """The validation score fell from its best. Needs at least 7 evaluations."""

    warning: ValidationDropWarning | None = ValidationDropWarning()
    critical: ValidationDropCritical | None = ValidationDropCritical()


VALIDATION = "validation_score"


def _validation_fell(drop: str, stddevs: str) -> Condition:
    confirmed = metric("rl_confirmed_best", signal=VALIDATION)
    return Condition(
        "better of the last two evaluations:",
        over("max", VALIDATION, 2) < confirmed - larger(Limit(stddevs) * stddev(VALIDATION), Limit(drop)),
        "from the best confirmed one and the standard deviation so far",
        signal=VALIDATION,
    )


VALIDATION_DROP = tuple(
    _alert(
        ValidationDrop,
        level,
        summary="Validation score dropped from its best",
        action="keep the best checkpoint; compare the training reward: if it still rises, read samples",
        conditions=(_validation_fell(f"{level}.drop", f"{level}.stddevs"),),
    )
    for level in ("warning", "critical")
)


class RewardHackSuspectWarning(Section):
    """The reward rises, but the quality that it measures does not."""

    gain: scalars.Limit = default(
        0.05,
        "How far the smoothed reward is above its start. The two hacked runs had gained 0.11 and 0.42 at"
        " the end.",
        RUNS,
    )
    stddevs: scalars.Limit = default(
        2, "And this many standard deviations: nine times the noise of that curve.", COMPUTED
    )
    followed_ratio: scalars.Ratio = default(
        0.2,
        "The true reward must have made at least this share of that gain. On the hacked runs it made at"
        " most 0.05.",
        RUNS,
    )
    drop: scalars.Limit = default(
        0.03,
        "Without a configured true reward: the validation score fell by this much, as in ValidationDrop.",
        RUNS,
    )
    validation_stddevs: scalars.Limit = default(5, "And by this many standard deviations.", SIMULATED)


class RewardHackSuspect(Block):
    """The reward rises, but validation or the true reward (`signals: true_reward: [...]`) does not."""

    warning: RewardHackSuspectWarning | None = RewardHackSuspectWarning()


_gain, _true_gain = metric("rl_gain", signal=REWARD), metric("rl_gain", signal="true_reward")
_hollow = _validation_fell("warning.drop", "warning.validation_stddevs")

REWARD_HACK_SUSPECT = _alert(
    RewardHackSuspect,
    "warning",
    summary="Reward rises while the true score does not",
    action="read samples with the highest rewards",
    conditions=(
        Condition(
            "gain of the true reward:",
            _true_gain < Limit("warning.followed_ratio") * _gain,
            "a share of the reward's gain",
        ),
        replace(_hollow, sparing=_true_gain, signal=""),
    ),
    given=(_gain > larger(Limit("warning.stddevs") * stddev(), Limit("warning.gain"))),
)

ALERTS = (
    REWARD_DROP,
    REWARD_COLLAPSE,
    REWARD_STAGNATION,
    NO_LEARNING_SIGNAL,
    *VALIDATION_DROP,
    REWARD_HACK_SUSPECT,
)

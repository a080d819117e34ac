"""Alerts on a run's progress: it hangs, slows down, ends, or restarts repeatedly."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from stepwatch.alerts.model.alert import DURATION, JUDGED, NOTHING, RUNS, STEP, WHOLE, Alert, Condition, Fact
from stepwatch.alerts.model.expression import Expression, Formula, Limit, Series, any_of, larger
from stepwatch.alerts.model.runs import (
    by_either,
    highest,
    increased,
    is_in,
    last,
    metric,
    over,
    since_last_step,
)
from stepwatch.schema import scalars
from stepwatch.schema.scalars import Duration
from stepwatch.schema.section import Block, Section, default

_interval = metric("rl_step_interval_typical_seconds")

_in_use = 0.1  # of a GPU's memory: what a driver and a desktop take is less
_alive = any_of(
    (
        Series("up", {"role": "rollout"}, by="").equals(1),
        Series("gpu_memory_used_bytes", by="") / Series("gpu_memory_total_bytes", by="") > _in_use,
        Formula("max(DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE))") > _in_use,
    )
)
"""A sign of life that the run exporter cannot see: a rollout server answers, or GPU memory is in use."""

_alert = partial(Alert, topic="progress")

_requested = metric("rl_run_exit_info", requested="true")
_waits = metric("rl_run_retry_timestamp_seconds")
_RETRY = Fact("rl_run_retry_info{%s}", "; {{.Labels.cause}}")


class Stalled(Block):
    """No step for a long time, but something is still alive: the log is open, or a GPU is in use."""

    severity: scalars.Severity = default("critical", "Pages: a run that hangs holds its GPUs.")
    silence: scalars.PositiveSpan = default(Duration.parse("10m"), "No step for at least this long.", JUDGED)
    intervals: scalars.Limit = default(
        5,
        "And for this many of the run's typical step times: 30-minute steps do not page.",
        JUDGED,
    )


STALLED = _alert(
    Stalled,
    summary="Run hangs",
    action="`py-spy dump` of the trainer; then check the rollout servers' logs and `nvidia-smi`",
    conditions=(
        Condition(
            "no step for",
            since_last_step() > larger(Limit("intervals") * _interval, Limit("silence")),
            "from its usual step time, at least `silence`",
            signal="since_last_step",
        ),
        Condition("no step for", since_last_step() > Limit("silence"), sparing=_interval),
    ),
    given=is_in("running") | is_in("stopped").while_(_alive),
    sparing=any_of(
        (metric("rl_run_writer_present").equals(0), is_in("failed", "vanished"), _requested, _waits)
    ),
    style=DURATION,
    facts=(STEP,),
    wait="15s",  # a run that falls silent becomes RunStopped first
)


class SlowStepsWarning(Section):
    """Slower per token; longer responses alone do not fire."""

    median_ratio: scalars.Ratio = default(
        0.5,
        "Tokens per second, per GPU or in total, for 5 steps: share of the median of 64 steps. 14 healthy"
        " runs stay above 0.78.",
        RUNS,
    )
    times_median: scalars.Limit = default(
        3,
        "Or seconds of generation per token, for 3 steps: multiple of the median of 64 steps. The same runs"
        " stay below 1.5.",
        RUNS,
    )


class SlowSteps(Block):
    """The run has become slower per token."""

    warning: SlowStepsWarning | None = SlowStepsWarning()


def _speed(words: str, signal: str) -> Condition:
    return Condition(
        f"{words}, highest of 5 steps:",
        over("max", signal, 5) < Limit("warning.median_ratio") * over("median", signal, 64),
        "from the median of 64 steps",
        signal=signal,
    )


_GENERATION = "rollout_seconds_per_token"

SLOW_STEPS = _alert(
    SlowSteps,
    "warning",
    summary="Steps have become much slower per token",
    action="look for throttled GPUs, a slow network or disk, and preempted rollout requests",
    conditions=(
        Condition(
            "seconds of generation per token, lowest of 3 steps:",
            over("min", _GENERATION, 3) > Limit("warning.times_median") * over("median", _GENERATION, 64),
            "from the median of 64 steps",
            signal=_GENERATION,
        ),
        _speed("tokens/s per GPU", "tokens_per_second_per_gpu"),
        _speed("tokens/s", "tokens_per_second"),
    ),
)


class RunFailed(Block):
    """The log ends with a traceback or an exit status."""

    severity: scalars.Severity = default("critical", "Pages: the run ended before it was complete.")


class RunVanished(Block):
    """The log's writer is gone before the run's last step."""

    severity: scalars.Severity = default("critical", "Pages: the run ended before it was complete.")


class RunStopped(Block):
    """The log's writer is gone or silent, and the log does not show how the run ended.

    Does not fire for a run that was stopped on request.
    """

    severity: scalars.Severity = default("warning", "Does not page: the run may have been complete.")


class RunFinished(Block):
    """The run completed."""

    enabled: scalars.Switch = default(False, "Off: a completed run needs no action.")
    severity: scalars.Severity = default("info", "Shown on dashboards only; `warning` sends a notification.")


# As long as `last` remembers the end itself.
_LAST_STEP = Fact("max(last_over_time(rl_step{%s}[10m]))", f"{STEP.text}{{{{else}}}} before the first step")
_SINCE = Fact(
    "time()-max(last_over_time(rl_last_step_timestamp_seconds{%s}[10m]))",
    ", {{humanizeDuration .Value}} ago",
)
_CAUSE = Fact("rl_run_exit_info{%s}", "; {{.Labels.cause}}")
_TOOK = Fact(
    "max(rl_last_step_timestamp_seconds{%[1]s})-max(rl_run_start_timestamp_seconds{%[1]s})",
    " after {{humanizeDuration .Value}}",
)
_BEST = Fact("max(rl_best{signal='reward',%s})", '; best reward {{printf "%.3g" .Value}}')


def _ended(
    block: type[Block],
    state: str,
    summary: str,
    words: str,
    action: str,
    *,
    sparing: Expression | None = None,
    facts: tuple[Fact, ...] = (_LAST_STEP, _SINCE, _CAUSE),
    about: str = "run",
) -> Alert:
    """Return the alert on how a run ended, by its last known state: a lost scrape resolves nothing."""
    return _alert(
        block,
        summary=summary,
        action=action,
        conditions=(Condition(words, last("rl_run_state", state=state).equals(1), sparing=sparing),),
        style=NOTHING,
        facts=facts,
        others=about == "run",  # a completed run needs nothing else
        about=about,
        keep=False,
    )


RUN_FAILED = _ended(
    RunFailed,
    "failed",
    "Run failed",
    "ended with an error",
    "read the end of the log from its first traceback; then resume from the last checkpoint",
)

RUN_VANISHED = _ended(
    RunVanished,
    "vanished",
    "Run vanished before its last step",
    "the log's writer is gone",
    "check `dmesg` for the out-of-memory killer, and the scheduler; then resume from the last checkpoint",
)

RUN_STOPPED = _ended(
    RunStopped,
    "stopped",
    "Run stopped for an unknown reason",
    "the log's writer is gone or silent",
    "check whether the run was complete; if not, resume from the last checkpoint",
    sparing=last("rl_run_state", state="stopped")
    .while_(_alive)
    .unless(last("rl_run_writer_present").equals(0))
    | last("rl_run_exit_info", requested="true"),
)

RUN_FINISHED = _ended(
    RunFinished,
    "finished",
    "Run finished",
    "completed",
    "no action needed",
    facts=(STEP, _TOOK, _BEST),
    about="end",
)


class NeverStarted(Block):
    """A trainer writes its log but logs no step.

    Evaluated while no run is running and no run has logged a step since that log appeared.
    """

    about_runs: ClassVar[bool] = False

    severity: scalars.Severity = default("warning", "Does not page: the trainer may still be loading.")
    silence: scalars.PositiveSpan = default(
        Duration.parse("30m"),
        "Loading weights and compiling graphs takes minutes; the first rollouts of long responses take"
        " longer.",
        JUDGED,
    )


NEVER_STARTED = _alert(
    NeverStarted,
    summary="Trainer writes its log but logs no step",
    action="read the end of the log; `py-spy dump` of the trainer",
    conditions=(
        Condition(
            "no step for",
            Formula("time()") - Series("stepwatch_log_without_step_timestamp_seconds", by="instance, log")
            > Limit("silence"),
        ),
    ),
    style=DURATION,
    facts=(),
    others=False,
    about="log",
)


class Restarting(Block):
    """The run restarts repeatedly: a crash loop, resumed or from scratch. Planned retries do not count."""

    severity: scalars.Severity = default(
        "critical",
        "Pages: a crash loop wastes GPU hours and can look healthy, since each start makes some steps.",
    )
    restarts: scalars.Count = default(3, "Restarts within an hour. One or two are usually manual.", JUDGED)


RESTARTING = _alert(
    Restarting,
    summary="Run restarts repeatedly",
    action="stop the process that restarts it; read the end of the log before the last start",
    conditions=(
        Condition(
            "restarts within 1 h:",
            (
                increased("rl_restarts_total") - increased("rl_run_retries_total")
                | increased("rl_restarts_total")
            )
            >= Limit("restarts"),
        ),
    ),
    style=WHOLE,
    facts=(STEP, _RETRY),
)


class ResumedWithLoss(Block):
    """The run resumed at an earlier step and repeats steps; fires for an hour."""

    severity: scalars.Severity = default("info", "Shown on dashboards only: the run continues by itself.")
    steps: scalars.Count = default(
        1, "Lost steps. A run that saves every 50th step loses 25 steps in an average crash.", JUDGED
    )


RESUMED_WITH_LOSS = _alert(
    ResumedWithLoss,
    summary="Run resumed at an earlier step",
    action="no action needed; save checkpoints more often if this happens often",
    conditions=(
        Condition(
            "repeated steps:",
            metric("rl_resume_lost_steps") >= Limit("steps"),
            given=increased("rl_resumes_total") >= 1,
        ),
    ),
    style=WHOLE,
    facts=(STEP, _RETRY),
    keep=False,
)


class GPUIdleWhileRunning(Block):
    """All GPUs of a run are idle during a step: the run waits for something else, or hangs.

    Evaluated while GPU memory is in use, over all watched GPUs except those that only other runs use.
    """

    severity: scalars.Severity = default("warning", "Does not page: Stalled pages if no step follows.")
    below_ratio: scalars.Ratio = default(
        0.05,
        "No GPU was utilized above this share at any moment of the last 10 minutes.",
        JUDGED,
    )
    intervals: scalars.Limit = default(
        2,
        "And the step takes this many times the usual step time. Of 4000 steps of real runs, 2 % took"
        " longer than 2.",
        RUNS,
    )


_busiest = highest(
    by_either("max_over_time(gpu_utilization_ratio[10m])", "max_over_time(DCGM_FI_DEV_GPU_UTIL[10m]) / 100"),
    by_either(
        "gpu_memory_used_bytes / gpu_memory_total_bytes",
        "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
    ),
    _in_use,
)
_watched = Formula("max(gpu_utilization_ratio offset 10m or DCGM_FI_DEV_GPU_UTIL offset 10m)")

GPU_IDLE_WHILE_RUNNING = _alert(
    GPUIdleWhileRunning,
    topic="gpu",
    summary="GPUs idle during a training step",
    action="check what the step waits for: scorer, tools, data, checkpoint; `py-spy dump` of the trainer",
    conditions=(
        Condition(
            "GPUs idle for 10 min; no step for",
            since_last_step() > Limit("intervals") * _interval,
            "from its usual step time",
            signal="gpu_utilization_ratio",
            line=("<", Limit("below_ratio")),
        ),
    ),
    given=(is_in("running") & (_busiest < Limit("below_ratio"))).while_(_watched),
    style=DURATION,
    others=False,
)

ALERTS = (
    STALLED,
    SLOW_STEPS,
    RUN_FAILED,
    RUN_VANISHED,
    RUN_STOPPED,
    RUN_FINISHED,
    NEVER_STARTED,
    RESTARTING,
    RESUMED_WITH_LOSS,
    GPU_IDLE_WHILE_RUNNING,
)

"""What the run exporter serves: every metric name, and every statistic some rule or panel uses.

The list holds exactly what rules and dashboards ask for: no full cross product, so that a run
stays below 270 series. A test derives the same list from the rendered rules and panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from exporter.http.exposition import Family

STATES = ("running", "finished", "failed", "vanished", "stopped")

NOT_FINITE_SIGNALS = (
    *("reward", "kl", "policy_kl", "entropy", "grad_norm", "policy_loss", "value_loss", "response_length"),
)
"""Signals whose NaN or Inf raises NonFinite."""

ZERO_MEANS_NOT_MEASURED = frozenset({"kl", "policy_kl", "entropy"})
"""Trainers log a constant 0 for these when they are switched off."""


MOST_SERIES = 270
"""Of one run, unless more raw keys are asked for than usual. What no rule looks at yields to the rest."""


class Hold(str, Enum):
    """Which extreme of a statistic survives until the next scrapes have seen it."""

    HIGH = "high"
    LOW = "low"
    NONE = "none"


class Statistic(NamedTuple):
    """One exported statistic; it exists once ``at_least`` values (or all ``steps``) are in its window."""

    name: str
    signal: str
    hold: Hold = Hold.NONE
    steps: int | None = None
    alpha: str | None = None
    at_least: int | None = None

    @property
    def metric(self) -> str:
        """The Prometheus metric name."""
        return f"rl_{self.name}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels beside ``run``, in the order in which they are written."""
        found = {"signal": self.signal, "alpha": self.alpha, "steps": self.steps and str(self.steps)}
        return {name: value for name, value in found.items() if value}


class Own(NamedTuple):
    """What alerts of users' own look at: statistics beside the listed ones, raw keys, and what is drawn."""

    statistics: tuple[Statistic, ...] = ()
    keys: tuple[str, ...] = ()
    drawn: frozenset[str] = frozenset()

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Own:
        """Return what JSON describes. Raises ValueError."""
        try:
            statistics = tuple(
                Statistic(each["name"], each["signal"], Hold(each["hold"]), each["steps"], each["alpha"])
                for each in found["statistics"]
            )
            if unknown := [each.name for each in statistics if each.name not in STATISTIC_HELP]:
                raise ValueError(f"unknown statistic {unknown[0]}")
            return cls(statistics, tuple(found["keys"]), frozenset(found["drawn"]))
        except (LookupError, TypeError) as problem:
            raise ValueError(f"{problem!r}") from problem


H, L = Hold.HIGH, Hold.LOW

STATISTICS: tuple[Statistic, ...] = (
    # reward: drops, collapses, dead and stuck rewards, stagnation
    Statistic("drawdown_min_over_steps", "reward", H, steps=3, alpha="0.5"),
    Statistic("drawdown_min_over_steps", "reward", H, steps=5, alpha="0.3"),
    Statistic("drawdown_min_over_steps", "reward", H, steps=20, alpha="0.1"),
    Statistic("drawdown", "reward", H, alpha="0.3"),
    Statistic("drawdown", "reward", H, alpha="0.1"),
    Statistic("best", "reward"),
    Statistic("start", "reward"),
    Statistic("noise", "reward"),
    Statistic("ewma", "reward", alpha="0.1"),
    Statistic("max_over_steps", "reward", L, steps=5),
    Statistic("max_over_steps", "reward", L, steps=10),
    Statistic("max_over_steps", "reward", L, steps=20),
    Statistic("max_over_steps", "reward", L, steps=32),
    Statistic("range_over_steps", "reward", L, steps=10),
    Statistic("range_over_steps", "reward", L, steps=20),
    Statistic("range_over_steps", "reward", L, steps=32),
    Statistic("median_over_steps", "reward", steps=32),
    Statistic("mean_over_steps", "reward", steps=20),
    Statistic("mean_over_steps", "reward", steps=32),
    Statistic("steps_since_best", "reward", H),
    Statistic("max_over_steps", "reward_max", L, steps=10),
    Statistic("max_over_steps", "reward_max", L, steps=20),
    Statistic("range_over_steps", "reward_max", L, steps=10),
    Statistic("range_over_steps", "reward_max", L, steps=20),
    Statistic("median_over_steps", "reward_max", steps=64, at_least=1),
    Statistic("mean_over_steps", "reward_std", steps=20),
    Statistic("mean_over_steps", "zero_std_ratio", H, steps=20),
    # what the reward is worth: held-out prompts, and a part that cannot be gamed
    Statistic("gain", "reward", H),
    Statistic("gain", "true_reward", L),
    Statistic("max_over_steps", "validation_score", L, steps=2),
    Statistic("confirmed_best", "validation_score"),
    Statistic("noise", "validation_score"),
    # KL to the reference, to a teacher, and between updates
    Statistic("min_over_steps", "kl", H, steps=3),
    Statistic("min_over_steps", "kl", H, steps=5),
    Statistic("max_over_steps", "kl", L, steps=10),
    Statistic("start", "kl"),
    Statistic("noise", "kl"),
    Statistic("min_over_steps", "kl_sequence", H, steps=3),
    Statistic("max_over_steps", "kl_sequence", L, steps=10),
    Statistic("start", "kl_sequence"),
    Statistic("noise", "kl_sequence"),
    Statistic("min_over_steps", "kl_teacher", H, steps=3),
    Statistic("start", "kl_teacher"),
    Statistic("noise", "kl_teacher"),
    Statistic("min_over_steps", "policy_kl", H, steps=5),
    Statistic("start", "policy_kl"),
    # entropy
    Statistic("median_over_steps", "entropy", L, steps=32),
    Statistic("min_over_steps", "entropy", H, steps=3),
    Statistic("ewma_max_over_steps", "entropy", L, steps=10, alpha="0.2"),
    Statistic("peak", "entropy"),
    Statistic("start", "entropy"),
    # length and truncation
    Statistic("min_over_steps", "response_length", H, steps=5),
    Statistic("mean_over_steps", "response_length", steps=3),
    Statistic("median_over_steps", "response_length", L, steps=5),
    Statistic("median_over_steps", "response_length", steps=64, at_least=5),
    Statistic("peak", "response_length"),
    Statistic("start", "response_length"),
    Statistic("mean_over_steps", "truncated_ratio", H, steps=5),
    Statistic("mean_over_steps", "truncated_ratio", H, steps=10),
    Statistic("min_over_steps", "truncated_ratio", H, steps=3),
    Statistic("min_over_steps", "truncated_ratio", H, steps=10),
    Statistic("start", "truncated_ratio"),
    # gradient, policy and critic
    Statistic("median_over_steps", "grad_norm", H, steps=5),
    Statistic("min_over_steps", "grad_norm", H, steps=10),
    Statistic("max_over_steps", "grad_norm", L, steps=20),
    Statistic("lowest_level", "grad_norm"),
    Statistic("level_over_steps", "grad_norm", steps=64, at_least=20),
    Statistic("spread_over_steps", "grad_norm", steps=64, at_least=20),
    Statistic("min_over_steps", "policy_clip_ratio", H, steps=5),
    Statistic("min_over_steps", "policy_loss", H, steps=20),
    Statistic("max_over_steps", "explained_variance", L, steps=20),
    Statistic("median_over_steps", "value_loss", H, steps=5),
    Statistic("level_over_steps", "value_loss", steps=64, at_least=20),
    *(Statistic("nonfinite_streak_steps", signal, H) for signal in NOT_FINITE_SIGNALS),
    # rollout engine against trainer, and how old samples are
    Statistic("min_over_steps", "engine_prob_diff", H, steps=5),
    Statistic("min_over_steps", "engine_prob_error", H, steps=5),
    Statistic("max_over_steps", "engine_prob_correlation", L, steps=5),
    Statistic("max_over_steps", "engine_effective_sample_ratio", L, steps=5),
    Statistic("min_over_steps", "kl_engine", H, steps=5),
    Statistic("min_over_steps", "engine_logprob_diff", H, steps=5),
    Statistic("mean_over_steps", "staleness", H, steps=20),
    Statistic("mean_over_steps", "stale_drop_ratio", H, steps=20),
    # rollouts that fail, tools, and prompts that tell nothing
    Statistic("mean_over_steps", "rollout_failure_ratio", H, steps=10),
    Statistic("min_over_steps", "rollouts_failed", H, steps=10),
    Statistic("mean_over_steps", "tool_failure_ratio", H, steps=5),
    Statistic("min_over_steps", "tool_failure_ratio", H, steps=10),
    Statistic("start", "tool_failure_ratio"),
    Statistic("mean_over_steps", "tool_calls", steps=5),
    Statistic("mean_over_steps", "tool_calls", L, steps=10),
    Statistic("start", "tool_calls"),
    Statistic("min_over_steps", "generation_rounds", H, steps=5),
    Statistic("start", "generation_rounds"),
    Statistic("mean_over_steps", "filtered_group_ratio", H, steps=20),
    # speed
    Statistic("max_over_steps", "tokens_per_second", L, steps=5),
    Statistic("median_over_steps", "tokens_per_second", steps=64, at_least=20),
    Statistic("max_over_steps", "tokens_per_second_per_gpu", L, steps=5),
    Statistic("median_over_steps", "tokens_per_second_per_gpu", steps=64, at_least=20),
    Statistic("min_over_steps", "rollout_seconds_per_token", H, steps=3),
    Statistic("median_over_steps", "rollout_seconds_per_token", steps=64, at_least=20),
)


JUDGED = frozenset(statistic.signal for statistic in STATISTICS)
"""Signals that rules or panels look at over steps."""


RUN_FAMILIES: tuple[Family, ...] = (
    Family("rl_run_info", "gauge", "What the run is read from; the value is always 1."),
    Family("rl_run_state", "gauge", "1 for the state the run is in, 0 for the others."),
    Family("rl_run_writer_present", "gauge", "1 while a process holds the log open, 0 once none does."),
    Family(
        "rl_run_exit_info", "gauge", "How the trainer ended, as `stepwatch run` or its log says; always 1."
    ),
    Family("rl_run_retry_info", "gauge", "Which planned retry this attempt is, or waits for; always 1."),
    Family("rl_run_retry_timestamp_seconds", "gauge", "When that retry starts, while it is waited for."),
    Family("rl_run_retries_total", "counter", "Attempts that `stepwatch run --retry` started."),
    Family("rl_run_checkpoint_step", "gauge", "Step of a complete checkpoint of a wrapped trainer."),
    Family("rl_run_signal_missing_info", "gauge", "A signal that the log lacks or has lost; always 1."),
    Family("rl_step", "gauge", "Training step of the last record."),
    Family("rl_total_steps", "gauge", "Steps the trainer was configured to make, where the log says so."),
    Family("rl_steps_seen", "gauge", "Steps from the first one measured to the last, by step number."),
    Family("rl_records_seen", "gauge", "Logged steps since the first one measured."),
    Family("rl_records_total", "counter", "Logged steps read."),
    Family("rl_resumes_total", "counter", "Times the step counter went back to a later step than the first."),
    Family("rl_restarts_total", "counter", "Times the step counter went back, to any step."),
    Family("rl_resume_lost_steps", "gauge", "Steps that the last resume has to repeat."),
    Family("rl_run_mark_timestamp_seconds", "gauge", "When an operator marked an intended change of level."),
    Family("rl_last_step_timestamp_seconds", "gauge", "When the last step was logged."),
    Family("rl_run_unread_since_timestamp_seconds", "gauge", "Since when the run's log cannot be read."),
    Family("rl_run_start_timestamp_seconds", "gauge", "When the first step was logged."),
    Family(
        "rl_step_interval_typical_seconds", "gauge", "Typical time between steps, with weight on long ones."
    ),
    Family("rl_limit_override", "gauge", "A limit that an override sets for the run; NaN disables it."),
    Family("rl_run_gpu_process_info", "gauge", "A process of the run that has a GPU open; always 1."),
    Family("rl_run_node_gpu_info", "gauge", "A GPU of the machine on which the run runs; always 1."),
    Family("rl_nonfinite_steps_total", "counter", "Logged steps in which the signal was NaN or Inf."),
)

DEPARTURE_STEP = Family(
    "rl_departure_step", "gauge", "While an alert fires: the step at which the signal left its healthy band."
)
DEPARTURE_DEVIATIONS = Family(
    "rl_departure_deviations",
    "gauge",
    "How far the signal is from the middle of that band now, in its standard deviations; below 0: downwards.",
)

STATISTIC_HELP: dict[str, str] = {
    "min_over_steps": "Smallest value of the last steps.",
    "max_over_steps": "Largest value of the last steps.",
    "mean_over_steps": "Mean of the last steps.",
    "median_over_steps": "Median of the last steps.",
    "level_over_steps": "Usual size of the last steps' values: their mean without zeros and extremes.",
    "spread_over_steps": "Usual difference between the last steps' values, as a standard deviation.",
    "lowest_level": "Lowest `rl_level_over_steps` of 64 steps so far.",
    "range_over_steps": "Largest minus smallest value of the last steps; of reward_max, down to reward_min.",
    "ewma": "Exponentially weighted mean with a warm start.",
    "ewma_max_over_steps": "Largest exponentially weighted mean of the last steps.",
    "best": "Best exponentially weighted mean (alpha 0.1) so far.",
    "confirmed_best": "Highest level so far that two values in a row reached.",
    "peak": "Largest exponentially weighted mean (alpha 0.05) so far.",
    "start": "Median of the first five values.",
    "gain": "Exponentially weighted mean (alpha 0.1) minus the start.",
    "noise": "The run's own step-to-step spread, as a standard deviation.",
    "drawdown": "Best minus the exponentially weighted mean.",
    "drawdown_min_over_steps": "Smallest drawdown of the last steps.",
    "steps_since_best": "Steps since the slow mean last exceeded its best, by step number.",
    "nonfinite_streak_steps": "Logged steps in a row in which the signal was NaN or Inf.",
}

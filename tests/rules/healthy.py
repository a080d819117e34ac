"""A run that learns: a value for every series that rules read. No rule fires on it.

The numbers are such that their sums and products with the default limits are exact.
"""

from __future__ import annotations

from exporter.runs.stats.catalogue import NOT_FINITE_SIGNALS
from tests.rules.cases import Value
from tests.rules.series import STATE, Series, fact, latest, statistic

HEALTHY: dict[Series, Value] = {STATE: "running"}


def _is(value: float, series: Series) -> Series:
    HEALTHY[series] = value
    return series


# reward: has been at 2, swings by 0.25 from step to step
REWARD = _is(1.75, latest("reward"))
REWARD_DRAWDOWN_5 = _is(0.125, statistic("drawdown_min_over_steps", "reward", alpha="0.3", steps=5))
REWARD_DRAWDOWN_3 = _is(0.1875, statistic("drawdown_min_over_steps", "reward", alpha="0.5", steps=3))
REWARD_DRAWDOWN_20 = _is(0.0625, statistic("drawdown_min_over_steps", "reward", alpha="0.1", steps=20))
REWARD_LOST_FAST = _is(0.25, statistic("drawdown", "reward", alpha="0.3"))
REWARD_LOST = _is(0.125, statistic("drawdown", "reward", alpha="0.1"))
REWARD_BEST = _is(2.0, statistic("best", "reward"))
REWARD_START = _is(1.125, statistic("start", "reward"))
REWARD_NOISE = _is(0.25, statistic("noise", "reward"))
REWARD_MEAN = _is(1.875, statistic("ewma", "reward", alpha="0.1"))
REWARD_MAX_5 = _is(2.25, statistic("max_over_steps", "reward", steps=5))
REWARD_MAX_10 = _is(2.25, statistic("max_over_steps", "reward", steps=10))
REWARD_MAX_20 = _is(2.25, statistic("max_over_steps", "reward", steps=20))
REWARD_MAX_32 = _is(2.25, statistic("max_over_steps", "reward", steps=32))
REWARD_RANGE_10 = _is(0.75, statistic("range_over_steps", "reward", steps=10))
REWARD_RANGE_20 = _is(1.0, statistic("range_over_steps", "reward", steps=20))
REWARD_RANGE_32 = _is(1.25, statistic("range_over_steps", "reward", steps=32))
REWARD_MEDIAN_32 = _is(1.75, statistic("median_over_steps", "reward", steps=32))
REWARD_MEAN_20 = _is(1.75, statistic("mean_over_steps", "reward", steps=20))
REWARD_MEAN_32 = _is(1.75, statistic("mean_over_steps", "reward", steps=32))
STEPS_SINCE_BEST = _is(40, statistic("steps_since_best", "reward"))
HIGHEST_10 = _is(4.0, statistic("max_over_steps", "reward_max", steps=10))
HIGHEST_20 = _is(4.0, statistic("max_over_steps", "reward_max", steps=20))
SAMPLES_RANGE_10 = _is(5.0, statistic("range_over_steps", "reward_max", steps=10))
SAMPLES_RANGE_20 = _is(5.0, statistic("range_over_steps", "reward_max", steps=20))
HIGHEST_MEDIAN = _is(4.0, statistic("median_over_steps", "reward_max", steps=64))
REWARD_STD = _is(0.5, statistic("mean_over_steps", "reward_std", steps=20))
ZERO_STD = _is(0.5, statistic("mean_over_steps", "zero_std_ratio", steps=20))

# what the reward is worth: a good part of it is true, and held-out prompts are solved as often as ever
GAIN = _is(0.75, statistic("gain", "reward"))
TRUE_GAIN = _is(0.5, statistic("gain", "true_reward"))
VALIDATION_MAX = _is(0.125, statistic("max_over_steps", "validation_score", steps=2))
VALIDATION_BEST = _is(0.125, statistic("confirmed_best", "validation_score"))
VALIDATION_NOISE = _is(0.00390625, statistic("noise", "validation_score"))

# KL: a quarter nat over a start of an eighth
KL = _is(0.375, latest("kl"))
KL_MIN = _is(0.25, statistic("min_over_steps", "kl", steps=3))
KL_MIN_5 = _is(0.25, statistic("min_over_steps", "kl", steps=5))
KL_MAX = _is(0.5, statistic("max_over_steps", "kl", steps=10))
KL_START = _is(0.125, statistic("start", "kl"))
KL_NOISE = _is(0.0625, statistic("noise", "kl"))
KL_SEQUENCE_MIN = _is(64.0, statistic("min_over_steps", "kl_sequence", steps=3))
KL_SEQUENCE_MAX = _is(72.0, statistic("max_over_steps", "kl_sequence", steps=10))
KL_SEQUENCE_START = _is(37.5, statistic("start", "kl_sequence"))
KL_SEQUENCE_NOISE = _is(8.0, statistic("noise", "kl_sequence"))
KL_TEACHER_MIN = _is(1.5, statistic("min_over_steps", "kl_teacher", steps=3))
KL_TEACHER_START = _is(2.0, statistic("start", "kl_teacher"))
KL_TEACHER_NOISE = _is(0.125, statistic("noise", "kl_teacher"))
POLICY_KL_MIN = _is(0.0078125, statistic("min_over_steps", "policy_kl", steps=5))
POLICY_KL_START = _is(0.0078125, statistic("start", "policy_kl"))

# entropy: half of where it began
ENTROPY = _is(0.5, latest("entropy"))
ENTROPY_MEDIAN = _is(0.5, statistic("median_over_steps", "entropy", steps=32))
ENTROPY_MIN = _is(0.5, statistic("min_over_steps", "entropy", steps=3))
ENTROPY_MEAN_MAX = _is(0.5, statistic("ewma_max_over_steps", "entropy", alpha="0.2", steps=10))
ENTROPY_PEAK = _is(1.0, statistic("peak", "entropy"))
ENTROPY_START = _is(1.0, statistic("start", "entropy"))

# responses: grow slowly, few are cut
LENGTH = _is(400.0, latest("response_length"))
LENGTH_MIN = _is(400.0, statistic("min_over_steps", "response_length", steps=5))
LENGTH_MEAN_3 = _is(512.0, statistic("mean_over_steps", "response_length", steps=3))
LENGTH_MEDIAN_5 = _is(400.0, statistic("median_over_steps", "response_length", steps=5))
LENGTH_MEDIAN_64 = _is(400.0, statistic("median_over_steps", "response_length", steps=64))
LENGTH_PEAK = _is(500.0, statistic("peak", "response_length"))
LENGTH_START = _is(300.0, statistic("start", "response_length"))
TRUNCATED = _is(0.125, latest("truncated_ratio"))
TRUNCATED_MEAN_5 = _is(0.125, statistic("mean_over_steps", "truncated_ratio", steps=5))
TRUNCATED_MEAN_10 = _is(0.125, statistic("mean_over_steps", "truncated_ratio", steps=10))
TRUNCATED_MIN_3 = _is(0.0625, statistic("min_over_steps", "truncated_ratio", steps=3))
TRUNCATED_MIN_10 = _is(0.0625, statistic("min_over_steps", "truncated_ratio", steps=10))
TRUNCATED_START = _is(0.125, statistic("start", "truncated_ratio"))

# gradient, policy and critic: a tenth is clipped, half of the variance is explained
GRAD_NORM_MEDIAN = _is(1.0, statistic("median_over_steps", "grad_norm", steps=5))
GRAD_NORM_MIN = _is(0.75, statistic("min_over_steps", "grad_norm", steps=10))
GRAD_NORM_MAX = _is(2.0, statistic("max_over_steps", "grad_norm", steps=20))
GRAD_NORM_LOWEST = _is(0.5, statistic("lowest_level", "grad_norm"))
GRAD_NORM_SPREAD = _is(0.25, statistic("spread_over_steps", "grad_norm", steps=64))
GRAD_NORM_LEVEL = _is(1.0, statistic("level_over_steps", "grad_norm", steps=64))
CLIPPED_MIN = _is(0.1, statistic("min_over_steps", "policy_clip_ratio", steps=5))
POLICY_LOSS_MIN = _is(-0.5, statistic("min_over_steps", "policy_loss", steps=20))
EXPLAINED_MAX = _is(0.5, statistic("max_over_steps", "explained_variance", steps=20))
VALUE_LOSS = _is(0.25, statistic("median_over_steps", "value_loss", steps=5))
VALUE_LOSS_USUAL = _is(0.25, statistic("level_over_steps", "value_loss", steps=64))
STREAKS = tuple(_is(0, statistic("nonfinite_streak_steps", signal)) for signal in NOT_FINITE_SIGNALS)

# rollouts: the engine is close to the trainer, samples are two versions old
PROB_DIFF_MIN = _is(0.004, statistic("min_over_steps", "engine_prob_diff", steps=5))
PROB_ERROR_MIN = _is(1.01, statistic("min_over_steps", "engine_prob_error", steps=5))
CORRELATION_MAX = _is(0.999, statistic("max_over_steps", "engine_prob_correlation", steps=5))
EFFECTIVE_MAX = _is(0.9, statistic("max_over_steps", "engine_effective_sample_ratio", steps=5))
ENGINE_KL_MIN = _is(0.001, statistic("min_over_steps", "kl_engine", steps=5))
LOGPROB_DIFF_MIN = _is(0.015625, statistic("min_over_steps", "engine_logprob_diff", steps=5))
STALENESS = _is(2.0, statistic("mean_over_steps", "staleness", steps=20))
STALE_DROPPED = _is(0.125, statistic("mean_over_steps", "stale_drop_ratio", steps=20))

# few rollouts and calls of tools fail; most prompts tell responses apart
ROLLOUTS_LOST = _is(0.03125, statistic("mean_over_steps", "rollout_failure_ratio", steps=10))
ROLLOUTS_FAILED = _is(0.0, statistic("min_over_steps", "rollouts_failed", steps=10))
TOOLS_FAIL = _is(0.25, statistic("mean_over_steps", "tool_failure_ratio", steps=5))
TOOLS_FAIL_MIN = _is(0.125, statistic("min_over_steps", "tool_failure_ratio", steps=10))
TOOLS_FAIL_START = _is(0.25, statistic("start", "tool_failure_ratio"))
CALLS_5 = _is(2.0, statistic("mean_over_steps", "tool_calls", steps=5))
CALLS_10 = _is(2.0, statistic("mean_over_steps", "tool_calls", steps=10))
CALLS_START = _is(2.0, statistic("start", "tool_calls"))
ROUNDS_MIN = _is(1.0, statistic("min_over_steps", "generation_rounds", steps=5))
ROUNDS_START = _is(1.0, statistic("start", "generation_rounds"))
FILTERED = _is(0.5, statistic("mean_over_steps", "filtered_group_ratio", steps=20))

# speed: steady, on eight GPUs
SPEED = _is(4096.0, statistic("max_over_steps", "tokens_per_second", steps=5))
SPEED_USUAL = _is(4096.0, statistic("median_over_steps", "tokens_per_second", steps=64))
GPU_SPEED = _is(512.0, statistic("max_over_steps", "tokens_per_second_per_gpu", steps=5))
GPU_SPEED_USUAL = _is(512.0, statistic("median_over_steps", "tokens_per_second_per_gpu", steps=64))
SECONDS_PER_TOKEN = _is(0.25, statistic("min_over_steps", "rollout_seconds_per_token", steps=3))
SECONDS_PER_TOKEN_USUAL = _is(0.25, statistic("median_over_steps", "rollout_seconds_per_token", steps=64))

# progress; the last step lies ahead of promtool's clock, which starts at 0
STEP = _is(640, fact("rl_step"))
TOTAL_STEPS = _is(1000, fact("rl_total_steps"))
STEPS_SEEN = _is(640, fact("rl_steps_seen"))
RECORDS = _is(640, fact("rl_records_total"))
RECORDS_SEEN = _is(640, fact("rl_records_seen"))
RESTARTS = _is(2, fact("rl_restarts_total"))
RESUMES = _is(1, fact("rl_resumes_total"))
LOST_BY_RESUME = _is(20, fact("rl_resume_lost_steps"))
LAST_STEP_AT = _is(2000, fact("rl_last_step_timestamp_seconds"))
STARTED_AT = _is(-20000, fact("rl_run_start_timestamp_seconds"))
STEP_INTERVAL = _is(30, fact("rl_step_interval_typical_seconds"))
WRITER_PRESENT = _is(1, fact("rl_run_writer_present"))
CHECKPOINT = _is(600, fact("rl_run_checkpoint_step", checkpoint="global_step_600"))
EXIT = _is(
    1, fact("rl_run_exit_info", cause="out of memory", exit_code="", signal="SIGKILL", requested="false")
)
REQUESTED = fact("rl_run_exit_info", cause="stopped by x", exit_code="0", signal="", requested="true")
RETRY_AT = fact("rl_run_retry_timestamp_seconds")
HEALTHY[REQUESTED] = HEALTHY[RETRY_AT] = None
RETRIES = _is(0, fact("rl_run_retries_total"))

NEGATIVE_BEST = {REWARD_BEST: -2.0}
"""Rewards may lie below zero all along: shares of the best go by its size."""

"""Keys of verl, all versions since 0.2; and its truncated share, set right where the v1 trainer logs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter.runs.signals.keys.key import (
    GIB,
    MS,
    Key,
    Keys,
    difference,
    inverse,
    mean_of,
    normal,
    rate,
    scaled,
    unless_negative,
)

V1_KEYS = ("training/num_turns/mean", "training/off_policy/trajectory_staleness/mean")
"""Keys that only verl's v1 trainer (0.9) logs."""
_SCORE = "(?:acc|accuracy|reward|score)"
_SCORE_AS_LOGGED = rf"(?i:/{_SCORE}/mean|^[^/]*_{_SCORE}_mean)"
"""What a data set's core metric may be: ``val-core/<data set>/<variable>/mean@<N>``.

verl takes ``acc``, and ``reward`` where there is none (``_val_metrics_update`` in trainer/ppo/ray_trainer.py
and v1/trainer_base.py of 0.9.1). Trainers built on it add other variables there, such as the tokens of a
response, or a penalty for long ones. rl-insight writes ``_`` for each slash.
"""


def _phase(name: str) -> tuple[str, str]:
    """A phase's time by its present and its old name."""
    return f"timing_s/{name}", f"timing/{name}"


KEYS: Keys = {
    "epoch": ("training/epoch",),
    "step_tokens": ("perf/total_num_tokens",),
    "reward": ("critic/score/mean", "critic/rewards/mean"),
    "reward_max": ("critic/score/max", "critic/rewards/max"),
    "reward_min": ("critic/score/min", "critic/rewards/min"),
    "advantage_mean": ("critic/advantages/mean",),
    "advantage_max": ("critic/advantages/max",),
    "advantage_min": ("critic/advantages/min",),
    "return_mean": ("critic/returns/mean",),
    "kl": ("actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"),
    "kl_engine": ("rollout_corr/kl", "rollout_corr/k3_kl"),
    "policy_kl": ("actor/ppo_kl",),
    "kl_coefficient": ("actor/kl_coef", "actor/reward_kl_penalty_coeff", "critic/kl_coeff"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "policy_loss": ("actor/pg_loss",),
    "loss": ("actor/loss", "train/loss"),
    "grad_norm": ("actor/grad_norm", "train/grad_norm"),
    "policy_clip_ratio": ("actor/pg_clipfrac",),
    "policy_clip_lower_ratio": ("actor/pg_clipfrac_lower",),
    "learning_rate": ("actor/lr", "train/lr"),
    "value_loss": ("critic/vf_loss",),
    "value_mean": ("critic/values/mean",),
    "value_clip_ratio": ("critic/vf_clipfrac",),
    "explained_variance": ("critic/vf_explained_var",),
    "critic_grad_norm": ("critic/grad_norm",),
    "critic_learning_rate": ("critic/lr",),
    "response_length": ("response_length/mean",),
    "response_length_max": ("response_length/max",),
    "response_length_min": ("response_length/min",),
    "truncated_ratio": ("response_length/clip_ratio",),
    "prompt_length": ("prompt_length/mean",),
    "prompt_length_max": ("prompt_length/max",),
    "prompt_length_min": ("prompt_length/min",),
    # v1 compares with the longest prompt of the batch, and no log tells the limit
    "prompt_truncated_ratio": (Key(("prompt_length/clip_ratio",), unless=V1_KEYS),),
    "aborted_ratio": ("response/aborted_ratio",),
    "turns": ("num_turns/mean", "training/num_turns/mean"),
    # validation: the core metric of each data set; the second spelling is that of 0.2
    "validation_score": (
        mean_of(rf"val_core_.+_{_SCORE}_mean_\d+", _SCORE_AS_LOGGED),
        mean_of(r"(val_)?(.+_)?test_score(_.+)?"),
    ),
    "step_seconds": ("perf/time_per_step", *_phase("step")),
    "rollout_seconds": _phase("gen"),
    "reward_seconds": _phase("reward"),
    "old_log_prob_seconds": _phase("old_log_prob"),
    "ref_log_prob_seconds": _phase("ref"),
    "values_seconds": _phase("values"),
    "advantage_seconds": _phase("adv"),
    "update_actor_seconds": _phase("update_actor"),
    "update_critic_seconds": _phase("update_critic"),
    # fully_async 0.8 has the prefix twice, 0.7 once; the last is one_step_off_policy's
    "weight_sync_seconds": (
        "timing_s/update_weights",
        "timing_s/timing_s/param_sync",
        "timing_s/param_sync",
        "timing_s/sync_rollout_weights",
    ),
    "save_checkpoint_seconds": _phase("save_checkpoint"),
    "validation_seconds": (*_phase("testing"), "rollouter/validate_time"),
    "wait_seconds": ("fully_async/total_wait_time", "timing_s/switch_wait"),
    "rollout_seconds_per_token": (scaled("timing_per_token_ms/gen", MS),),
    "ref_log_prob_seconds_per_token": (scaled("timing_per_token_ms/ref", MS),),
    "values_seconds_per_token": (scaled("timing_per_token_ms/values", MS),),
    "advantage_seconds_per_token": (scaled("timing_per_token_ms/adv", MS),),
    "update_actor_seconds_per_token": (scaled("timing_per_token_ms/update_actor", MS),),
    "update_critic_seconds_per_token": (scaled("timing_per_token_ms/update_critic", MS),),
    "sample_generation_seconds": ("timing_s/agent_loop/generate_sequences/mean",),
    "sample_generation_seconds_max": ("timing_s/agent_loop/generate_sequences/max",),
    "tool_call_seconds": ("timing_s/agent_loop/tool_calls/mean",),
    "tokens_per_second": tuple(
        rate("perf/total_num_tokens", time) for time in ("perf/time_per_step", *_phase("step"))
    ),
    "tokens_per_second_per_gpu": ("perf/throughput",),
    # time over all response tokens of the step: the whole cluster's speed
    "rollout_tokens_per_second": (inverse("timing_per_token_ms/gen", 1 / MS),),
    "mfu_ratio": ("perf/mfu/actor",),
    "critic_mfu_ratio": ("perf/mfu/critic",),
    "inference_mfu_ratio": ("perf/mfu/actor_infer",),
    # "gb" is GiB
    "gpu_memory_allocated_bytes": (
        scaled("actor/perf/max_memory_allocated_gb", GIB),
        scaled("perf/max_memory_allocated_gb", GIB),
    ),
    "gpu_memory_reserved_bytes": (
        scaled("actor/perf/max_memory_reserved_gb", GIB),
        scaled("perf/max_memory_reserved_gb", GIB),
    ),
    "critic_gpu_memory_allocated_bytes": (scaled("critic/perf/max_memory_allocated_gb", GIB),),
    "critic_gpu_memory_reserved_bytes": (scaled("critic/perf/max_memory_reserved_gb", GIB),),
    "host_memory_used_bytes": (
        scaled("actor/perf/cpu_memory_used_gb", GIB),
        scaled("perf/cpu_memory_used_gb", GIB),
    ),
    "rank_tokens_difference": (difference("global_seqlen/balanced_max", "global_seqlen/balanced_min"),),
    "preemptions": (unless_negative("timing_s/agent_loop/num_preempted/mean"),),
    "staleness": ("training/off_policy/trajectory_staleness/mean",),
    "staleness_max": (
        "training/off_policy/trajectory_staleness_worst/max",
        "training/off_policy/trajectory_staleness/max",
    ),
    "version_span_max": ("training/off_policy/trajectory_spans/max", "fully_async/partial/max_partial_span"),
    "partial_rollout_ratio": ("fully_async/partial/partial_ratio",),
    "stale_trajectories": ("fully_async/count/stale_trajectory_processed",),
    "stale_samples_dropped": (
        "training/off_policy/evicted_samples",
        "fully_async/count/dropped_stale_samples",
    ),
    "rollout_queue_size": ("fully_async/monitor/queue/mq_queue_size",),
    "rollout_idle_ratio": ("fully_async/rollouter/idle_ratio", "rollouter/idle_ratio"),
    "trainer_idle_ratio": ("fully_async/trainer/idle_ratio", "trainer/idle_ratio"),
    "engine_prob_diff": ("training/rollout_probs_diff_mean",),
    "engine_prob_diff_max": ("training/rollout_probs_diff_max",),
    "engine_prob_correlation": ("training/rollout_actor_probs_pearson_corr",),
    "engine_logprob_diff": ("rollout_corr/log_ppl_abs_diff",),
    "engine_importance_weight": ("rollout_corr/rollout_is_mean",),
    "engine_effective_sample_ratio": ("rollout_corr/rollout_is_eff_sample_size",),
}

_CORE, _MEAN = r"(?:rl_insight_monitor_)?val[-_]core", r"mean(?:@|_at_|_)\d+"

PARTS = (
    ("reward_component", re.compile(r"gdpo[/_](.+)[/_]mean")),
    ("reward_component_std", re.compile(r"gdpo[/_](.+)[/_]std")),
    # what validation_score is the mean of
    ("validation_component", re.compile(rf"{_CORE}/(.+)/(?i:{_SCORE})/{_MEAN}")),
    ("validation_component", re.compile(rf"{_CORE}_([^/]+)_(?i:{_SCORE})_{_MEAN}")),
    ("validation_component", re.compile(r"(?:val[/_])?test_score[/_](.+)")),
    ("validation_component", re.compile(r"(?:val[/_]|(?!val[/_]))(.+)[/_]test_score")),
)


_RATIO = "response_length/clip_ratio"
_SPELLINGS = (_RATIO, normal(_RATIO), f"rl_insight_monitor_{normal(_RATIO)}")
_V1_SPELLINGS = (*V1_KEYS, *map(normal, V1_KEYS))
TIMES = 3  # So often the longest responses of a batch have the same length only if that is the limit


class Truncation:
    """Corrects ``response_length/clip_ratio`` of one run.

    verl 0.9's v1 trainer compares each response with the longest of the batch (``metric_utils.py`` of
    0.9.1: the width of a tensor that v1 does not pad), so its share is never 0. It is the truncated share
    only where the longest response reached the limit. Where no log tells the limit (event files, CSV), it
    is the length that no response exceeds and that the longest of several batches reached.

    Logs do not always hold the keys by which v1 is known. Its share shows itself: it is above 0 at more
    than one longest length.
    """

    def __init__(self) -> None:
        self._relative = False
        self._cut_at: float | None = None
        self._longest = 0.0
        self._times = 0

    def correct(self, found: dict[str, float], values: Mapping[str, Any], limit: int | None) -> None:
        """Set right, or drop, the truncated share in ``found``, by the ``limit`` in tokens, if known."""
        share = found.get("truncated_ratio")
        if share is None or not any(name in values for name in _SPELLINGS):
            return
        longest = found.get("response_length_max")
        self._relative = self._relative or any(key in values for key in _V1_SPELLINGS)
        if longest is not None:
            if share > 0:
                self._relative = self._relative or self._cut_at not in (None, longest)
                self._cut_at = longest
            if longest > self._longest:
                self._longest, self._times = longest, 0
            self._times += longest == self._longest
        if not self._relative:
            return
        if limit is None and (longest is None or (longest == self._longest and self._times < TIMES)):
            del found["truncated_ratio"]
        elif longest is not None and longest < (limit or self._longest):
            found["truncated_ratio"] = 0.0

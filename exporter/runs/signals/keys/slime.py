"""Keys of slime."""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys, difference, mean_of

_DETAILS = "step|ratio|frac|mean|median|max|min|std|pass_[0-9]+|count_[0-9]+"
"""How keys below ``eval/`` end that are no data set's score."""

KEYS: Keys = {
    # rollout/rewards is normalised by group: about 0 by construction
    "reward": ("rollout/raw_reward",),
    "advantage_mean": ("rollout/advantages",),
    "return_mean": ("rollout/returns",),
    "kl": ("train/kl_loss", "rollout/kl"),
    "kl_teacher": ("rollout/opd_reverse_kl",),
    "kl_engine": ("train/mismatch_kl", "train/mismatch_k3_kl"),
    "policy_kl": ("train/ppo_kl",),
    "entropy": ("train/entropy_loss",),
    "policy_loss": ("train/pg_loss",),
    "loss": ("train/loss",),
    "grad_norm": ("train/grad_norm",),
    "policy_clip_ratio": ("train/pg_clipfrac",),
    "learning_rate": ("train/lr-pg_0",),
    "value_loss": ("train/critic-value_loss",),
    "value_mean": ("rollout/values",),
    "value_clip_ratio": ("train/critic-value_clipfrac",),
    "critic_grad_norm": ("train/critic-grad_norm",),
    "critic_learning_rate": ("train/critic-lr-pg_0",),
    "response_length": ("rollout/response_len/mean", "rollout/response_lengths"),
    "response_length_max": ("rollout/response_len/max",),
    "response_length_min": ("rollout/response_len/min",),
    "truncated_ratio": ("rollout/truncated_ratio", "rollout/truncated"),
    "prompt_length": (difference("rollout/total_lengths", "rollout/response_lengths"),),
    "turns": ("multi_turn/multi_turn_metric/round_number_mean",),
    "validation_score": (mean_of(rf"eval_(?!(.+_)?({_DETAILS})$).+"),),
    "validation_response_length": (mean_of(r"eval_.+_response_len_mean"),),
    "step_seconds": ("perf/step_time",),
    "rollout_seconds": ("perf/rollout_time",),
    "old_log_prob_seconds": ("perf/log_probs_time",),
    "ref_log_prob_seconds": ("perf/ref_log_probs_time",),
    "update_actor_seconds": ("perf/actor_train_time",),
    "weight_sync_seconds": ("perf/update_weights_time",),
    "save_checkpoint_seconds": ("perf/save_model_time",),
    "wait_seconds": ("perf/train_wait_time",),
    "sample_generation_seconds": ("perf/request/e2e_latency/mean",),
    "sample_generation_seconds_max": ("perf/request/e2e_latency/max",),
    "tool_call_seconds": ("perf/non_generation_time/mean",),
    "tokens_per_second": ("perf/actor_train_tok_per_s",),
    "rollout_tokens_per_second_per_gpu": ("perf/tokens_per_gpu_per_sec",),
    "trainer_idle_ratio": ("perf/wait_time_ratio",),
    "engine_logprob_diff": ("train/train_rollout_logprob_abs_diff",),
    "engine_importance_weight": ("train/ois",),
}

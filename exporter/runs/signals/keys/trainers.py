"""Keys of the trainers whose tables are short."""

from __future__ import annotations

import re

from exporter.runs.signals.keys.key import GIB, Key, Keys, difference, mean_of, rest_of_one, scaled, total

# OpenRLHF.

OPENRLHF_PREFIXES = ("train/", "eval/")  # Added by TensorBoard and W&B
OPENRLHF: Keys = {
    # the mean before the batch is split and filtered; then per sample, then what filtering goes by
    "reward": ("rollout/reward_mean", "reward", "score"),
    "reward_std": ("rollout/reward_std", "group_reward_std"),
    "return_mean": ("return",),
    "kl": ("kl",),
    "kl_engine": ("vllm_kl",),
    "policy_kl": ("ppo_kl",),
    "entropy": ("entropy_loss",),
    "policy_loss": ("policy_loss",),
    "grad_norm": ("actor_grad_norm", "grad_norm"),
    "policy_clip_ratio": ("ppo_clip_ratio",),
    "learning_rate": ("actor_lr", "lr"),
    "value_loss": ("critic_loss",),
    "value_mean": ("values",),
    "critic_grad_norm": ("critic_grad_norm",),
    "critic_learning_rate": ("critic_lr",),
    "preference_reward_chosen": ("chosen_reward",),
    "preference_reward_rejected": ("reject_reward",),
    "preference_reward_margin": (difference("chosen_reward", "reject_reward"),),
    "preference_accuracy": ("acc",),
    "response_length": ("rollout/response_length_mean", "response_length"),
    "truncated_ratio": ("rollout/truncated_rate", "response_clip_ratio"),
    "prompt_length": (difference("total_length", "response_length"),),
    "validation_score": (mean_of(r"eval_.+_pass1"),),
    "validation_response_length": ("eval_response_length_mean",),
    "step_seconds": ("timing/step_total",),
    "rollout_seconds": ("timing/generation",),
    "make_experience_seconds": ("timing/make_experience",),
    "update_actor_seconds": ("timing/ppo_train",),
    "weight_sync_seconds": ("timing/broadcast",),
}

OPENRLHF_PARTS = (("validation_component", re.compile(r"(?:eval/)?eval_(.+)_pass1")),)

# open-instruct's GRPO trainer.
#
# Source: ``open_instruct/grpo_fast.py``, ``grpo_utils.py`` and ``data_loader.py`` of 2026-10.

OPEN_INSTRUCT: Keys = {
    # with rewards of an environment, the verifiers' part is 0 for the whole run
    "reward": ("scores", "objective/verifiable_reward"),
    "kl": ("objective/kl2_avg", "objective/kl_avg"),
    "entropy": ("policy/entropy_avg",),
    "policy_loss": ("loss/policy_avg",),
    "loss": ("loss/total_avg",),
    "grad_norm": ("optim/grad_norm", "loss/grad_norm"),
    "policy_clip_ratio": ("policy/clipfrac_avg",),
    "importance_weight": ("val/ratio",),
    "learning_rate": ("lr",),
    "advantage_mean": ("val/advantages_mean",),
    "advantage_max": ("val/advantages_max",),
    "advantage_min": ("val/advantages_min",),
    "response_length": ("val/sequence_lengths",),
    "response_length_max": ("val/sequence_lengths_max",),
    "response_length_min": ("val/sequence_lengths_min",),
    "truncated_ratio": ("val/truncated_completion_fraction",),
    "engine_importance_weight": ("val/tis_ratio",),
    # both are the same scores, where a set has verifiers
    "validation_score": ("eval/scores", "eval/objective/verifiable_reward"),
    "validation_response_length": ("eval/sequence_lengths",),
    "step_seconds": ("time/total",),
    "wait_seconds": ("time/trainer_idle_waiting_for_inference",),
    "stale_samples_dropped": ("stale_results_dropped",),
    "tokens_per_second": ("learner_tokens_per_second_step",),
    "mfu_ratio": ("learner_mfu",),
}

# prime-rl, of its trainer and its orchestrator.
#
# Source: ``trainer/rl/train.py`` and ``orchestrator/metrics.py`` of 2026-10. Its console's words are
# given these keys.

PRIME_RL: Keys = {
    "reward": ("reward/all/mean", "reward/mean"),
    "reward_max": ("reward/all/max",),
    "reward_min": ("reward/all/min",),
    # k3 between the rollout engine's and the trainer's probabilities; there is no reference model
    "kl_engine": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
    "entropy": ("entropy/all/mean", "entropy/mean"),
    "policy_loss": ("loss/mean",),
    "grad_norm": ("optim/grad_norm",),
    "learning_rate": ("optim/lr",),
    "response_length": ("decode_len/all/mean", "decode_len/mean", "seq_len/all/mean", "seq_len/mean"),
    "response_length_max": ("decode_len/all/max",),
    "response_length_min": ("decode_len/all/min",),
    "truncated_ratio": ("is_truncated/all/mean", "is_truncated/mean"),
    "prompt_length": ("prefill_len/all/mean", "prefill_len/mean"),
    "turns": ("num_turns/all/mean",),
    "validation_score": ("val_reward/all/mean", "val_reward/mean"),
    "step_seconds": ("time/step",),
    "wait_seconds": ("time/wait_for_batch",),
    "update_actor_seconds": ("time/forward_backward",),
    "weight_sync_seconds": ("time/broadcast_weights",),
    "save_checkpoint_seconds": ("time/save_ckpt",),
    "tokens_per_second": ("perf/throughput",),
    "tokens_per_second_per_gpu": ("perf/throughput_per_gpu",),
    "mfu_ratio": (scaled("perf/mfu", 0.01),),
    "gpu_memory_reserved_bytes": (scaled("perf/peak_memory", GIB),),
    "staleness_max": ("off_policy_level/all/max",),
}

PRIME_RL_PARTS = (
    ("validation_component", re.compile(r"val_reward/(?!all/)(.+)/mean")),
    ("validation_component", re.compile(r"val_reward/(?!mean$)([^/]+)")),
)

# ROLL's pipelines: RLVR and agentic.
#
# Source: ``roll/utils/metrics/metrics_manager.py`` and ``roll/pipeline/rlvr/actor_worker.py`` of 2026-10.

ROLL: Keys = {
    "reward": ("critic/score/mean", "critic/rewards/mean"),
    "reward_max": ("critic/score/max", "critic/rewards/max"),
    "reward_min": ("critic/score/min", "critic/rewards/min"),
    "zero_std_ratio": (total("group/all_correct_groups_ratio", "group/all_incorrect_groups_ratio"),),
    "advantage_mean": ("critic/advantages/mean",),
    "advantage_max": ("critic/advantages/max",),
    "advantage_min": ("critic/advantages/min",),
    "return_mean": ("critic/returns/mean",),
    "kl": ("actor/kl_loss", "critic/kl"),
    "policy_kl": ("actor/policykl",),
    "entropy": ("critic/entropy/mean",),
    "policy_loss": ("actor/pg_loss",),
    "loss": ("actor/total_loss",),
    "grad_norm": ("actor_train/grad_norm", "actor/grad_norm"),
    "policy_clip_ratio": ("actor/ppo_ratio_clipfrac", "actor/clipfrac"),
    "policy_clip_lower_ratio": ("actor/ppo_ratio_low_clipfrac",),
    "importance_weight": ("actor/ratio_mean",),
    "learning_rate": ("actor_train/lr", "actor/lr"),
    "value_loss": ("critic/loss", "critic/vf_loss"),
    "value_mean": ("critic/values/mean",),
    "response_length": ("token/response_length/mean", "tokens/response_length/mean"),
    "response_length_max": ("token/response_length/max", "tokens/response_length/max"),
    "response_length_min": ("token/response_length/min", "tokens/response_length/min"),
    "prompt_length": ("token/prompt_length/mean", "tokens/prompt_length/mean"),
    "prompt_length_max": ("token/prompt_length/max", "tokens/prompt_length/max"),
    "prompt_length_min": ("token/prompt_length/min", "tokens/prompt_length/min"),
    "validation_score": ("val_correct/all/mean", "val/score/mean"),
    "step_seconds": ("time/step_total",),
    "rollout_seconds": ("time/step_generate", "time/rollout"),
    "ref_log_prob_seconds": ("time/ref_log_probs_values", "time/ref_log_probs_values_reward"),
    "old_log_prob_seconds": ("time/old_log_probs", "time/old_log_probs_values"),
    "advantage_seconds": ("time/adv",),
    "update_actor_seconds": ("time/step_train",),
    "weight_sync_seconds": ("time/step_model_update", "time/model_update"),
    "tokens_per_second": ("system/tps",),
    "tokens_per_second_per_gpu": ("system/tps_gpu",),
    "engine_prob_diff": ("actor/train_infer_diff_mean",),
    "engine_importance_weight": ("actor/train_infer_ratio_mean",),
}

ROLL_PARTS = (("validation_component", re.compile(r"val_correct/(?!all/)(.+)/mean")),)

# slime.

_SLIME_DETAILS = "step|ratio|frac|mean|median|max|min|std|pass[@_][0-9]+|count_[0-9]+"
"""How keys below ``eval/`` end that are not the score of a data set; nor is what has a further slash."""
SLIME: Keys = {
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
    "validation_score": (mean_of(rf"eval_(?!(.+_)?({_SLIME_DETAILS})$).+", spelled=r"^[^/]*eval[/_][^/]+$"),),
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

SLIME_PARTS = (
    ("validation_component", re.compile(rf"eval[/_](?!(?:.+[\W_])?(?:{_SLIME_DETAILS})$)([^/]+)")),
)

# Twinkle's events, gathered into steps.

TWINKLE: Keys = {
    "reward": ("reward",),
    "reward_std": ("group_reward_std_mean",),
    "zero_std_ratio": ("zero_advantage_group_ratio",),
    "advantage_mean": ("advantage_mean",),
    "policy_loss": ("loss",),
    "loss": ("loss",),
    "grad_norm": ("grad_norm",),
    "learning_rate": ("learning rate(param group 1)", "learning_rate"),
    "response_length": ("completion_length_mean",),
    "response_length_max": ("completion_length_max",),
    "truncated_ratio": ("completion_truncated_ratio",),
    "rollout_seconds": ("rollout_latency_s",),
    "update_actor_seconds": ("train_latency_s",),
    "weight_sync_seconds": ("policy_publish_latency_s",),
    "save_checkpoint_seconds": ("adapter_save_latency_s",),
    "staleness": ("policy_version_gap_mean",),
    "staleness_max": ("policy_version_gap_max",),
    "version_span_max": ("rollout_policy_span_max",),
}

# DeepSpeed-Chat: those of its event files, and names for what only its console tells.

DEEPSPEED_CHAT: Keys = {
    "reward": ("reward",),
    "policy_loss": ("actor_loss",),
    "value_loss": ("critic_loss",),
    "step_seconds": ("end_to_end_latency",),
    "rollout_seconds": ("generation_latency",),
}

# AReaL.
#
# The actor's statistics stand below the scope of its class: ``ppo_actor/`` (AReaL 1.0,
# ``areal/trainer/ppo/actor.py``), ``grpo_actor/`` before, another name in a class of one's own. What an
# update measures stands below ``update/`` there since 1.0.

AREAL_VARIANTS = ((re.compile(r"\w+_actor/"), "ppo_actor/"),)


def _of_update(name: str) -> tuple[str, str]:
    """What an update measures, by its present and its old name."""
    return f"ppo_actor/update/{name}", f"ppo_actor/{name}"


def _negative(name: str) -> tuple[Key, ...]:
    """New minus old, where all other trainers take old minus new."""
    return tuple(scaled(key, -1) for key in _of_update(name))


AREAL: Keys = {
    "step_tokens": ("ppo_actor/n_tokens",),
    "reward": ("ppo_actor/task_reward/avg", "rollout/reward"),
    "reward_max": ("ppo_actor/task_reward/max",),
    "reward_min": ("ppo_actor/task_reward/min",),
    "advantage_mean": ("ppo_actor/advantages/avg",),
    "advantage_max": ("ppo_actor/advantages/max",),
    "advantage_min": ("ppo_actor/advantages/min",),
    "return_mean": ("ppo_critic/target_value/avg",),
    "kl_engine": ("ppo_actor/update/compute_logp/kl_div_direct/avg", *_negative("behave_approx_kl/avg")),
    "policy_kl": _negative("approx_kl/avg"),
    "entropy": _of_update("entropy/avg"),
    "policy_loss": _of_update("actor_loss/avg"),
    "grad_norm": _of_update("grad_norm"),
    "policy_clip_ratio": _of_update("clip_ratio/avg"),
    "policy_clip_lower_ratio": _of_update("dual_clip_ratio/avg"),
    "importance_weight": _of_update("importance_weight/avg"),
    "learning_rate": _of_update("lr"),
    "update_skipped_ratio": tuple(map(rest_of_one, _of_update("update_successful"))),
    "value_loss": ("ppo_critic/critic_loss/avg",),
    "value_mean": ("ppo_critic/new_value/avg",),
    "value_clip_ratio": ("ppo_critic/clip_ratio/avg",),
    "critic_grad_norm": ("ppo_critic/grad_norm",),
    "critic_learning_rate": ("ppo_critic/lr",),
    "preference_reward_chosen": ("dpo/chosen_reward/avg",),
    "preference_reward_rejected": ("dpo/rejected_reward/avg",),
    "preference_reward_margin": ("dpo/reward_margin/avg",),
    "preference_accuracy": ("dpo/reward_accuracy/avg",),
    "response_length": (difference("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"),),
    "truncated_ratio": ("ppo_actor/no_eos_ratios/avg",),
    "prompt_length": ("ppo_actor/prompt_len/avg",),
    "prompt_length_max": ("ppo_actor/prompt_len/max",),
    "prompt_length_min": ("ppo_actor/prompt_len/min",),
    "validation_score": ("eval-rollout/reward",),
    # there is no total; validation counts in no other trainer's step either
    "step_seconds": (Key(pattern=r"timeperf_(?!eval$).+", formula=lambda *numbers: sum(numbers)),),
    "rollout_seconds": ("timeperf/rollout",),
    "old_log_prob_seconds": ("timeperf/recompute_logp",),
    "ref_log_prob_seconds": ("timeperf/ref_logp",),
    "values_seconds": ("timeperf/critic_values",),
    "advantage_seconds": ("timeperf/compute_advantage",),
    "update_actor_seconds": ("timeperf/train_step",),
    "update_critic_seconds": ("timeperf/critic_train_step",),
    "weight_sync_seconds": ("timeperf/update_weights",),
    "save_checkpoint_seconds": ("timeperf/save",),
    "validation_seconds": ("timeperf/eval",),
    "staleness": ("ppo_actor/update/version_stats/sample_staleness_theta_avg",),
    "staleness_max": ("ppo_actor/update/version_stats/sample_staleness_theta_max",),
    "engine_importance_weight": _of_update("behave_imp_weight/avg"),
}

# NeMo-RL, as in TensorBoard.

NEMO_RL: Keys = {
    "step_tokens": ("train/total_num_tokens",),
    "reward": ("train/reward",),
    "reward_max": ("train/total_reward/max", "train/max_total_reward"),
    "reward_min": ("train/total_reward/min", "train/min_total_reward"),
    "reward_std": ("train/total_reward/stddev",),
    # percentages of groups in which all failed and in which all succeeded
    "zero_std_ratio": (
        total("train/baseline_reward/pct_0", "train/baseline_reward/pct_1", scale=0.01),
        scaled("train/baseline_reward/pct_0", 0.01),
    ),
    "advantage_mean": ("train/advantages/mean",),
    "advantage_max": ("train/advantages/max",),
    "advantage_min": ("train/advantages/min",),
    "return_mean": ("train/critic/returns_mean",),
    "kl": ("train/kl_penalty",),
    "kl_engine": ("train/gen_kl_error", "train/policy_kl_error"),
    "entropy": ("train/approx_entropy",),
    "policy_loss": ("train/loss",),
    "loss": ("train/loss",),
    "grad_norm": ("train/grad_norm",),
    "importance_weight": ("train/probs_ratio",),
    "learning_rate": ("train/lr",),
    "value_loss": ("train/critic/loss",),
    "value_mean": ("train/critic/values_mean",),
    "value_clip_ratio": ("train/critic/vf_clipfrac",),
    "explained_variance": ("train/critic/explained_var",),
    "critic_grad_norm": ("train/critic/grad_norm",),
    "critic_learning_rate": ("train/critic/lr",),
    "preference_reward_chosen": ("train/rewards_chosen_mean",),
    "preference_reward_rejected": ("train/rewards_rejected_mean",),
    "preference_reward_margin": (difference("train/rewards_chosen_mean", "train/rewards_rejected_mean"),),
    "preference_accuracy": ("train/accuracy",),
    "response_length": ("train/mean_gen_tokens_per_sample",),
    "response_length_max": ("train/max_gen_tokens_per_sample", "train/gen_tokens_per_sample/max"),
    "response_length_min": ("train/gen_tokens_per_sample/min",),
    "truncated_ratio": ("train/truncation_rate",),
    "prompt_length": ("train/mean_prompt_length",),
    "turns": ("train/avg_turns_per_sample", "train/turns_per_sample/mean"),
    "validation_score": ("validation/accuracy", "validation/pass_k"),
    "validation_response_length": ("validation/avg_length",),
    "step_seconds": ("timing/train/total_step_time",),
    # the async trainer logs only what training did not hide
    "rollout_seconds": ("timing/train/generation", "timing/train/exposed_generation"),
    "reward_seconds": ("timing/train/reward_calculation",),
    # with those of the reference model
    "old_log_prob_seconds": ("timing/train/policy_and_reference_logprobs",),
    "values_seconds": ("timing/train/value_inference",),
    "advantage_seconds": ("timing/train/advantage_calculation",),
    "update_actor_seconds": ("timing/train/policy_training",),
    "update_critic_seconds": ("timing/train/value_training",),
    "weight_sync_seconds": ("timing/train/weight_sync", "timing/train/prepare_for_generation/total"),
    "save_checkpoint_seconds": ("timing/train/checkpointing",),
    "validation_seconds": ("timing/validation/total_validation_time",),
    "wait_seconds": ("timing/train/idle/buffer_starvation",),
    "tokens_per_second": ("performance/tokens_per_sec",),
    "tokens_per_second_per_gpu": (
        "performance/tokens_per_sec_per_gpu",
        "timing/train/valid_tokens_per_sec_per_gpu",
    ),
    "rollout_tokens_per_second_per_gpu": ("performance/generation_tokens_per_sec_per_gpu",),
    "mfu_ratio": ("performance/train_fp_utilization",),
    "staleness": ("train/avg_trajectory_age",),
    "rollout_queue_size": ("train/buffer_size",),
    "trainer_idle_ratio": ("performance/training_worker_idle_time_ratio",),
    "engine_prob_error": ("train/token_mult_prob_error",),
    "engine_importance_weight": ("train/sampling_importance_ratio",),
}

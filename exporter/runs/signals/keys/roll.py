"""Keys of ROLL's pipelines: RLVR and agentic.

Source: ``roll/utils/metrics/metrics_manager.py`` and ``roll/pipeline/rlvr/actor_worker.py`` of 2026-10.
"""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys, total

KEYS: Keys = {
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

"""Keys of OpenRLHF."""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys, difference, mean_of

PREFIXES = ("train/", "eval/")
"""Added by TensorBoard and W&B."""

KEYS: Keys = {
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

"""Keys of TRL: GRPO, RLOO, AsyncGRPO, PPO and DPO, of ms-swift, and of older versions."""

from __future__ import annotations

import re

from exporter.runs.signals.keys.key import GIB, MS, Key, Keys, inverse, scaled

PREFIXES = ("train/",)  # Added by TensorBoard and W&B
ASYNC = ("ratio",)
"""A key of AsyncGRPO only. There `kl` compares with the policy that generated, not with the reference."""
KEYS: Keys = {
    "epoch": ("epoch",),
    "episodes_seen": ("episode",),
    "tokens_seen": ("num_tokens",),
    "reward": ("reward", "objective/scores", "objective/rlhf_reward", "ppo/mean_scores", "env/reward_mean"),
    "reward_std": ("reward_std", "ppo/std_scores", "env/reward_std"),
    "zero_std_ratio": ("frac_reward_zero_std",),
    "kl": (Key(("kl",), unless=ASYNC),),
    "kl_sequence": ("objective/kl",),
    "policy_kl": (Key(("kl",), when=ASYNC), "policy/approxkl_avg", "ppo/policy/approxkl"),
    "kl_coefficient": ("objective/kl_coef",),
    "entropy": ("entropy", "policy/entropy_avg", "ppo/policy/entropy"),
    "policy_loss": ("policy_loss", "loss/policy_avg", "ppo/loss/policy", "loss"),
    "loss": ("loss", "ppo/loss/total"),
    "value_loss": ("loss/value_avg", "ppo/loss/value"),
    "value_clip_ratio": ("val/clipfrac_avg", "ppo/val/clipfrac"),
    "explained_variance": ("ppo/val/var_explained",),
    "grad_norm": ("grad_norm",),
    "policy_clip_ratio": (
        "clip_ratio/region_mean",
        "clip_ratio",
        "cispo_clip_ratio",
        "policy/clipfrac_avg",
        "ppo/policy/clipfrac",
    ),
    "policy_clip_lower_ratio": ("clip_ratio/low_mean",),
    "importance_weight": ("ratio", "val/ratio"),
    "learning_rate": ("learning_rate", "lr", "ppo/learning_rate"),
    "preference_reward_chosen": ("rewards/chosen",),
    "preference_reward_rejected": ("rewards/rejected",),
    "preference_reward_margin": ("rewards/margins",),
    "preference_accuracy": ("rewards/accuracies",),
    "response_length": ("completions/mean_length", "completion_length", "tokens/responses_len_mean"),
    "response_length_max": ("completions/max_length",),
    "response_length_min": ("completions/min_length",),
    "truncated_ratio": ("completions/clipped_ratio",),
    "prompt_length": ("tokens/queries_len_mean",),
    "validation_score": ("eval_reward", "eval_rewards/accuracies"),
    "validation_response_length": ("eval_completions/mean_length", "eval_completion_length"),
    "step_seconds": ("step_time", inverse("train_speed(iter/s)")),
    "reward_seconds": (scaled("scoring_time_ms", MS),),
    "update_actor_seconds": ("forward_time_s",),
    "weight_sync_seconds": ("weight_sync_time_s",),
    "validation_seconds": ("eval_runtime",),
    "wait_seconds": (scaled("wait_scoring_ms", MS),),
    "tokens_per_second": ("training_tok/s",),
    # all engines together, since the start
    "rollout_tokens_per_second": ("generation_tok_per_s",),
    "gpu_memory_used_bytes": (scaled("memory(GiB)", GIB),),
    "rollout_queue_size": ("buffer_qsize",),
    "engine_logprob_diff": ("sampling/sampling_logp_difference/mean",),
    "engine_importance_weight": ("sampling/importance_sampling_ratio/mean",),
}

PARTS = (
    ("reward_component_std", re.compile(r"(?:train/)?rewards[/_](.+)[/_]std")),
    ("reward_component", re.compile(r"(?:train/)?rewards[/_](.+?)(?:[/_]mean)?(?<![/_]std)")),
)
NAMED = (("validation_component", re.compile(r"eval[/_](.+)_runtime"), "validation_score"),)
"""Each of several evaluation sets has a record: its own keys hold its name, those of rewards do not."""

"""Keys of home-made loops and exporters, of Tinker, SkyRL and RAGEN.

Any trainer may also write a signal under the name that it has here.
"""

from __future__ import annotations

import re

from exporter.runs.signals.keys.catalogue import NAMES
from exporter.runs.signals.keys.key import Key, Keys, joined, rate

PREFIXES = ("train/", "training/", "metrics/", "train_", "trainer_", "training_")
"""Sections that home-made loops put their keys in."""
_KNOWN: Keys = {
    "epoch": ("epoch", "progress/epoch"),
    "reward": (
        *("reward_mean", "mean_reward", "avg_reward", "average_reward", "reward/total"),
        *("reward/avg_raw_reward", "env/all/reward/total", "verl_average_reward", "rewards_mean"),
        *("rollout/ep_rew_mean", "reward", "score_mean", "score", "performance"),
    ),
    "reward_max": ("reward_max", "max_reward"),
    "reward_min": ("reward_min", "min_reward"),
    "reward_std": ("reward_std", "std_reward", "rewards_std", "group_reward_std"),
    "zero_std_ratio": ("frac_reward_zero_std", "frac_zero_std", "zero_std_ratio", "zero_std_frac"),
    "advantage_mean": ("advantage_mean", "mean_advantage", "advantages_mean", "loss/avg_raw_advantages"),
    "kl": (
        *("kl_div", "kl_divergence", "kl", "kl_mean", "mean_kl", "ref_kl", "kl_ref", "kl_to_ref"),
        *("kl_loss", "policy/policy_kl"),
    ),
    "kl_teacher": ("kl_teacher", "teacher_kl", "distillation/kl"),
    "kl_engine": ("optim/kl_sample_train_v1",),
    "policy_kl": ("ppo_kl", "approx_kl"),
    "kl_coefficient": ("kl_coef", "kl_coeff", "kl_beta"),
    "entropy": (
        *("entropy", "entropy_mean", "mean_entropy", "policy/entropy"),
        *("policy/policy_entropy", "optim/entropy"),
    ),
    "policy_loss": ("policy_loss", "actor_loss", "pg_loss", "policy/policy_loss", "loss"),
    "loss": ("loss", "total_loss", "train_loss", "policy/final_loss"),
    "value_loss": ("value_loss", "critic_loss", "vf_loss"),
    "grad_norm": (
        *("grad_norm", "actor_grad_norm", "gradient_norm", "policy/raw_grad_norm", "policy/grad_norm"),
        *("optim/grad_norm", "skyrl.ai/grad_norm", "unclipped_grad_l2:mean"),
    ),
    "policy_clip_ratio": ("clip_fraction", "clip_frac", "clipfrac", "pg_clipfrac", "policy/ppo_clip_ratio"),
    "learning_rate": ("learning_rate", "lr", "optim/lr", "policy/policy_lr", "skyrl.ai/learning_rate"),
    "response_length": (
        *("response_length", "response_length_mean", "mean_response_length", "avg_response_length"),
        *("mean_length", "output_length", "completion_length", "mean_completion_length", "completion_len"),
        *("mean_completion_len", "response_len", "mean_response_len", "avg_gen_tokens", "mean_gen_tokens"),
        *("generate/avg_num_tokens", "env/all/ac_tokens_per_turn"),
    ),
    "response_length_max": (
        "max_response_length",
        "max_completion_length",
        "max_gen_tokens",
        "generate/max_num_tokens",
    ),
    "response_length_min": ("min_response_length", "min_gen_tokens", "generate/min_num_tokens"),
    "truncated_ratio": (
        "truncated_ratio",
        "truncation_rate",
        "truncated_fraction",
        rate("truncated_count", "rollout_count"),
    ),
    "turns": ("env/all/turns_per_episode",),
    "validation_score": (
        *("validation_score", "eval/all/avg_score", "test/env/all/reward/total", "val_score", "val_reward"),
        *("val_accuracy", "eval_score", "eval_reward", "eval_accuracy", "test_accuracy"),
    ),
    "step_seconds": (
        *("step_seconds", "step_time", "time_per_step", "time/total", "timing/step", "step_duration"),
    ),
    "rollout_seconds": (
        "rollout_seconds",
        "rollout_latency_seconds",
        "rollout_time",
        "generation_time",
        "timing/generate",
    ),
    "update_actor_seconds": ("timing/policy_train",),
    "weight_sync_seconds": ("timing/sync_weights",),
    "sample_generation_seconds": ("verl_sample_generation_seconds",),
    "tokens_per_second": ("tokens_per_second", "throughput", "tokens_per_sec"),
    "mfu_ratio": ("mfu",),
    "gpu_memory_used_bytes": ("verl_gpu_memory_used_bytes",),
    "gpu_utilization_ratio": (Key(("gpu_utilization",), lambda x: x / 100 if x > 1 else x),),
}

KEYS: Keys = joined(_KNOWN, {name: (name,) for name in NAMES})
SCOPED: Keys = joined(KEYS, {"truncated_ratio": ("clip_ratio",)})  # of scoped JSON lines
PARTS = (
    ("reward_component", re.compile(r"(?:train/|env/all/)?rewards?/(?!avg_|mean_|std)([^/]+)")),
    ("validation_component", re.compile(r"eval/(?!all/)(.+)/avg_score")),
    ("validation_component", re.compile(r"test/env/(?!all/)(.+)/reward/total")),
)

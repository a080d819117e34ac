"""Keys of Twinkle's events, gathered into steps."""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys

KEYS: Keys = {
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

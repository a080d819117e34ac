"""Keys of DeepSpeed-Chat: those of its event files, and names for what only its console tells."""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys

KEYS: Keys = {
    "reward": ("reward",),
    "policy_loss": ("actor_loss",),
    "value_loss": ("critic_loss",),
    "step_seconds": ("end_to_end_latency",),
    "rollout_seconds": ("generation_latency",),
}

"""Keys of open-instruct's GRPO trainer.

Source: ``open_instruct/grpo_fast.py``, ``grpo_utils.py`` and ``data_loader.py`` of 2026-10.
"""

from __future__ import annotations

from exporter.runs.signals.keys.key import Keys

KEYS: Keys = {
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

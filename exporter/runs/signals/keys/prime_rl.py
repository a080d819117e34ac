"""Keys of prime-rl, of its trainer and its orchestrator.

Source: ``trainer/rl/train.py`` and ``orchestrator/metrics.py`` of 2026-10. Its console's words are
given these keys.
"""

from __future__ import annotations

from exporter.runs.signals.keys.key import GIB, Keys, scaled

KEYS: Keys = {
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

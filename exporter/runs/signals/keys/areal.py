"""Keys of AReaL.

The actor's statistics stand below the scope of its class: ``ppo_actor/`` (AReaL 1.0,
``areal/trainer/ppo/actor.py``), ``grpo_actor/`` before, another name in a class of one's own. What an
update measures stands below ``update/`` there since 1.0.
"""

from __future__ import annotations

import re

from exporter.runs.signals.keys.key import Key, Keys, difference, rest_of_one, scaled, sum_of

VARIANTS = ((re.compile(r"\w+_actor/"), "ppo_actor/"),)


def _of_update(name: str) -> tuple[str, str]:
    """What an update measures, by its present and its old name."""
    return f"ppo_actor/update/{name}", f"ppo_actor/{name}"


def _negative(name: str) -> tuple[Key, ...]:
    """New minus old, where all other trainers take old minus new."""
    return tuple(scaled(key, -1) for key in _of_update(name))


KEYS: Keys = {
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
    "step_seconds": (sum_of(r"timeperf_(?!eval$).+"),),
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

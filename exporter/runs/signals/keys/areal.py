"""Keys of AReaL."""

from __future__ import annotations

from exporter.runs.signals.key import Keys, difference, rest_of_one, scaled, sum_of

KEYS: Keys = {
    "step_tokens": ("ppo_actor/n_tokens",),
    "reward": ("ppo_actor/task_reward/avg", "rollout/reward"),
    "reward_max": ("ppo_actor/task_reward/max",),
    "reward_min": ("ppo_actor/task_reward/min",),
    "advantage_mean": ("ppo_actor/advantages/avg",),
    "advantage_max": ("ppo_actor/advantages/max",),
    "advantage_min": ("ppo_actor/advantages/min",),
    "return_mean": ("ppo_critic/target_value/avg",),
    # new minus old where all others take old minus new
    "kl_engine": (
        "ppo_actor/update/compute_logp/kl_div_direct/avg",
        scaled("ppo_actor/update/behave_approx_kl/avg", -1),
        scaled("ppo_actor/behave_approx_kl/avg", -1),
    ),
    "policy_kl": (
        scaled("ppo_actor/update/approx_kl/avg", -1),
        scaled("ppo_actor/approx_kl/avg", -1),
    ),
    "entropy": ("ppo_actor/update/entropy/avg",),
    "policy_loss": ("ppo_actor/update/actor_loss/avg",),
    "grad_norm": ("ppo_actor/update/grad_norm",),
    "policy_clip_ratio": ("ppo_actor/update/clip_ratio/avg",),
    "policy_clip_lower_ratio": ("ppo_actor/update/dual_clip_ratio/avg",),
    "importance_weight": ("ppo_actor/update/importance_weight/avg",),
    "learning_rate": ("ppo_actor/update/lr",),
    "update_skipped_ratio": (rest_of_one("ppo_actor/update/update_successful"),),
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
    "engine_importance_weight": ("ppo_actor/update/behave_imp_weight/avg", "ppo_actor/behave_imp_weight/avg"),
}

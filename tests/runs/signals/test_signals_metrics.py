"""Every key that keys.yaml names, as the trainers' sources do, is read as the signal it carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.runs.signals import Reading

COLUMNS = {
    "verl": "verl",
    "trl_grpo": "trl",
    "trl_ppo": "trl",
    "trl_dpo": "trl",
    "openrlhf": "openrlhf",
    "nemo_rl": "nemo_rl",
    "slime": "slime",
    "areal": "areal",
}

SIGNALS = {
    "rl_epoch": "epoch",
    "rl_episodes_total": "episodes_seen",
    "rl_tokens_seen_total": "tokens_seen",
    "rl_step_tokens": "step_tokens",
    "rl_reward_mean": "reward",
    "rl_reward_std": "reward_std",
    "rl_reward_max": "reward_max",
    "rl_reward_min": "reward_min",
    "rl_score_mean": "reward",
    "rl_score_max": "reward_max",
    "rl_score_min": "reward_min",
    "rl_zero_std_group_ratio": "zero_std_ratio",
    "rl_policy_kl": "policy_kl",
    "rl_reference_kl_loss": "kl",
    "rl_reference_kl_reward": "kl",
    "rl_reference_kl_coef": "kl_coefficient",
    "rl_entropy_mean": "entropy",
    "rl_policy_loss": "policy_loss",
    "rl_actor_loss": "loss",
    "rl_value_loss": "value_loss",
    "rl_value_explained_variance": "explained_variance",
    "rl_value_clip_ratio": "value_clip_ratio",
    "rl_value_mean": "value_mean",
    "rl_policy_clip_ratio": "policy_clip_ratio",
    "rl_policy_clip_lower_ratio": "policy_clip_lower_ratio",
    "rl_importance_ratio_mean": "importance_weight",
    "rl_gradient_norm actor": "grad_norm",
    "rl_gradient_norm critic": "critic_grad_norm",
    "rl_learning_rate actor": "learning_rate",
    "rl_learning_rate critic": "critic_learning_rate",
    "rl_update_skipped": "update_skipped_ratio",
    "rl_advantage_mean": "advantage_mean",
    "rl_advantage_max": "advantage_max",
    "rl_advantage_min": "advantage_min",
    "rl_return_mean": "return_mean",
    "rl_response_length_mean": "response_length",
    "rl_response_length_max": "response_length_max",
    "rl_response_length_min": "response_length_min",
    "rl_response_truncated_ratio": "truncated_ratio",
    "rl_prompt_length_mean": "prompt_length",
    "rl_prompt_length_max": "prompt_length_max",
    "rl_prompt_length_min": "prompt_length_min",
    "rl_prompt_truncated_ratio": "prompt_truncated_ratio",
    "rl_aborted_ratio": "aborted_ratio",
    "rl_turns_mean": "turns",
    "rl_step_duration_seconds": "step_seconds",
    "rl_phase_duration_seconds generation": "rollout_seconds",
    **{
        f"rl_phase_duration_seconds {phase}": f"{phase}_seconds"
        for phase in (
            *("reward", "old_log_prob", "ref_log_prob", "values", "make_experience", "advantage"),
            *("update_critic", "update_actor", "weight_sync", "save_checkpoint", "validation", "wait"),
        )
    },
    "rl_phase_token_duration_seconds generation": "rollout_seconds_per_token",
    **{
        f"rl_phase_token_duration_seconds {phase}": f"{phase}_seconds_per_token"
        for phase in ("ref_log_prob", "values", "advantage", "update_critic", "update_actor")
    },
    "rl_throughput_tokens_per_second_per_gpu": "tokens_per_second_per_gpu",
    "rl_throughput_tokens_per_second": "tokens_per_second",
    "rl_rollout_tokens_per_second_per_gpu": "rollout_tokens_per_second_per_gpu",
    "rl_mfu_ratio actor": "mfu_ratio",
    "rl_mfu_ratio critic": "critic_mfu_ratio",
    "rl_mfu_ratio actor_infer": "inference_mfu_ratio",
    "rl_gpu_memory_allocated_max_bytes actor": "gpu_memory_allocated_bytes",
    "rl_gpu_memory_reserved_max_bytes actor": "gpu_memory_reserved_bytes",
    "rl_gpu_memory_allocated_max_bytes critic": "critic_gpu_memory_allocated_bytes",
    "rl_gpu_memory_reserved_max_bytes critic": "critic_gpu_memory_reserved_bytes",
    "rl_host_memory_used_bytes actor": "host_memory_used_bytes",
    "rl_batch_tokens_per_rank_imbalance": "rank_tokens_difference",
    "rl_rollout_preemptions_mean": "preemptions",
    "rl_rollout_generate_duration_seconds mean": "sample_generation_seconds",
    "rl_rollout_generate_duration_seconds max": "sample_generation_seconds_max",
    "rl_rollout_tool_call_duration_seconds mean": "tool_call_seconds",
    "rl_validation_score": "validation_score",
    "rl_validation_response_length_mean": "validation_response_length",
    "rl_sample_staleness_mean": "staleness",
    "rl_sample_staleness_max": "staleness_max",
    "rl_trajectory_version_span_max": "version_span_max",
    "rl_partial_rollout_ratio": "partial_rollout_ratio",
    "rl_stale_trajectories_total": "stale_trajectories",
    "rl_dropped_stale_samples": "stale_samples_dropped",
    "rl_rollout_queue_size": "rollout_queue_size",
    "rl_idle_ratio rollout": "rollout_idle_ratio",
    "rl_idle_ratio trainer": "trainer_idle_ratio",
    "rl_rollout_train_prob_abs_diff_mean": "engine_prob_diff",
    "rl_rollout_train_prob_abs_diff_max": "engine_prob_diff_max",
    "rl_rollout_train_prob_correlation": "engine_prob_correlation",
    "rl_rollout_train_logprob_abs_diff_mean": "engine_logprob_diff",
    "rl_rollout_train_kl": "kl_engine",
    "rl_rollout_importance_ratio_mean": "engine_importance_weight",
    "rl_preference_reward_chosen_mean": "preference_reward_chosen",
    "rl_preference_reward_rejected_mean": "preference_reward_rejected",
    "rl_preference_margin_mean": "preference_reward_margin",
    "rl_preference_accuracy_ratio": "preference_accuracy",
}
"""Headings of the reference, with the values of their labels, and the signals of the catalogue."""

OTHER_SIGNALS = {
    ("rl_reference_kl_reward", "objective/kl"): "kl_sequence",  # a sum over the response
    ("rl_rollout_importance_ratio_mean", "train/token_mult_prob_error"): "engine_prob_error",  # exp(|diff|)
    ("rl_rollout_tokens_per_second_per_gpu", "timing_per_token_ms/gen"): "rollout_tokens_per_second",
    ("rl_rollout_tokens_per_second_per_gpu", "generation_tok_per_s"): "rollout_tokens_per_second",
}
"""Keys that are not quite what their heading says: the last two are of all engines together."""

NO_SIGNAL = {
    "step": "is the record's step",
    "training/global_step": "is the record's step",
    "train/step": "is the record's step",
    "rollout/step": "is the record's step",
    "performance/average_token_imbalance": "a ratio over generation workers, no count of tokens",
}

PATTERNS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    # by the start of the regular expression: signals (and parts), and reasons, of keys that match it
    "^gdpo/(?P<reward>.+)/mean": ({"gdpo/format/mean": "reward_component format"}, {}),
    "^gdpo/(?P<reward>.+)/std": ({"gdpo/format/std": "reward_component_std format"}, {}),
    "^rewards/(?P<reward>.+)/mean": ({"rewards/format/mean": "reward_component format"}, {}),
    "^rewards/(?P<reward>.+)/std": ({"rewards/format/std": "reward_component_std format"}, {}),
    "^ray/node": ({}, {"ray/node.0.mem_gb": "its step counts seconds, and the box exporter knows it"}),
    "^val-": (
        {"val-core/openai/gsm8k/acc/mean@8": "validation_score, validation_component openai/gsm8k"},
        {
            "val-core/openai/gsm8k/acc/best@8/mean": "not the core's mean",
            "val-aux/openai/gsm8k/reward/mean@8": "not the core's mean",
        },
    ),
    "^eval_(?P<variable>reward|": (
        {"eval_reward": "validation_score"},
        {"eval_reward_std": "no score", "eval_rewards/format/mean": "a part of the score"},
    ),
    "^eval_(?P<variable>loss|": (
        {"eval_rewards/accuracies": "validation_score"},
        {"eval_loss": "lower is better", "eval_rewards/margins": "has no scale"},
    ),
    "^eval_(?P<dataset>.+)_(?P<stat>": (
        {"eval_gsm8k_pass1": "validation_score, validation_component gsm8k"},
        {"eval_gsm8k_pass8": "the best of eight is no mean"},
    ),
    "^eval/(?P<dataset>(?!step": (
        {"eval/aime": "validation_score, validation_component aime"},
        {"eval/aime-pass@8": "the best of eight is no mean"},
    ),
    "^eval/(?P<dataset>[^/]+)/response_len": (
        {"eval/aime/response_len/mean": "validation_response_length"},
        {},
    ),
}

Case = tuple[str, str, dict[str, Any]]
"""Heading, column, and one candidate."""


@pytest.fixture(name="cases", scope="module")
def _cases() -> list[Case]:
    named = yaml.safe_load(Path(__file__).with_name("keys.yaml").read_text())
    return [
        (heading, column, candidate)
        for heading, columns in named.items()
        for column, candidates in columns.items()
        for candidate in candidates
    ]


def test_every_key_is_read_as_its_signal_in_its_unit(cases: list[Case]) -> None:
    keys = [case for case in cases if "key" in case[2] and case[2]["key"] not in NO_SIGNAL]
    assert len(keys) > 250

    for heading, column, candidate in keys:
        key = candidate["key"]
        signal = OTHER_SIGNALS.get((heading, key)) or SIGNALS[heading]
        found = Reading(COLUMNS[column]).signals({key: 0.5})
        assert found.get(signal) == 0.5 * candidate.get("scale", 1), (heading, column, key)


def test_every_derived_value_is_worked_out(cases: list[Case]) -> None:
    derived = [case for case in cases if case[2].get("derive")]
    assert len(derived) == 6

    for heading, column, candidate in derived:
        names = {letter: 0.25 + place for place, letter in enumerate(sorted(candidate["from"]))}
        written = {candidate["from"][letter]: value for letter, value in names.items()}
        signal = OTHER_SIGNALS.get((heading, next(iter(written)))) or SIGNALS[heading]
        found = Reading(COLUMNS[column]).signals(written)
        assert found.get(signal) == pytest.approx(eval(candidate["expr"], {}, names)), (heading, column)


def test_every_pattern_is_read_or_left_with_a_reason(cases: list[Case]) -> None:
    patterns = {(column, case["regex"]) for _, column, case in cases if "regex" in case}
    assert len(patterns) == len(PATTERNS)

    for column, pattern in patterns:
        ((signals, reasons),) = [found for start, found in PATTERNS.items() if pattern.startswith(start)]
        for key, signal in signals.items():
            reading = Reading(COLUMNS[column])
            read = [*reading.signals({key: 0.5}), *map(" ".join, reading.parts({key: 0.5}))]
            assert ", ".join(read) == signal, key
        for key in reasons:
            reading = Reading(COLUMNS[column])
            assert [*reading.signals({key: 0.5}), *reading.parts({key: 0.5})] == [], key


def test_keys_without_a_signal_carry_none(cases: list[Case]) -> None:
    named = {(column, case["key"]) for _, column, case in cases if case.get("key") in NO_SIGNAL}
    assert {key for _, key in named} == set(NO_SIGNAL)

    for column, key in named:
        assert Reading(COLUMNS[column]).signals({key: 0.5}) == {}


def test_no_other_signal_goes_by_a_name_of_the_reference(cases: list[Case]) -> None:
    headings = {heading for heading, _, _ in cases}

    assert headings - set(SIGNALS) == {
        "rl_global_step",
        "rl_reward_component_mean",
        "rl_reward_component_std",
    }

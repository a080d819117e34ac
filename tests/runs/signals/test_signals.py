"""Which key carries which signal, and the keys that mean something else than they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs import signals
from exporter.runs.signals.keys import FRAMEWORKS
from exporter.runs.signals.keys.verl import Truncation
from exporter.runs.signals.reading import table
from exporter.runs.signals.record import Record, ResponseLimit
from exporter.runs.sources.line_consoles import VerlConsole
from exporter.runs.stats.catalogue import STATISTICS

GIB = 1024**3


def read(framework: str, values: dict[str, Any]) -> dict[str, float]:
    return signals.Reading(framework).signals(values)


def verl(**values: Any) -> dict[str, float]:
    return read("verl", {key.replace("__", "/"): value for key, value in values.items()})


# validation


CORE = "val-core/math/dapo"
DATA_SETS = {"math_500": 0.75, "AIME-24": 0.25}
OF_DATA_SETS = {("validation_component", name): value for name, value in DATA_SETS.items()}


@pytest.mark.parametrize("mean", ["mean@8", "mean_at_8"])
@pytest.mark.parametrize("other", ["response_tokens", "overlong_reward", "num_turns", "entropy"])
def test_only_what_scores_a_validation_set_is_its_score(mean: str, other: str) -> None:
    """Trainers built on verl log lengths and penalties where verl has a data set's accuracy or reward."""
    values = {
        f"{CORE}/acc/{mean}": 0.5,
        f"{CORE}/{other}/{mean}": 2048.0,
        f"val-core/aime/reward/{mean}": 0.25,
    }
    reading = signals.Reading("verl")

    assert reading.signals(values) == {"validation_score": 0.375}
    assert reading.sources(values) == {
        "validation_score": (f"{CORE}/acc/{mean}", f"val-core/aime/reward/{mean}"),
    }


def test_a_score_is_known_without_slashes_as_well() -> None:
    """rl-insight writes an underscore for each."""
    before = "rl_insight_monitor_val_core_gsm8k"

    assert read("verl", {f"{before}_acc_mean_8": 0.5, f"{before}_response_tokens_mean_8": 99}) == {
        "validation_score": 0.5
    }


@given(
    st.from_regex(r"[a-z]{1,8}(/[a-z_]{1,8}){0,2}", fullmatch=True),
    st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
)
def test_no_other_variable_of_any_validation_set_is_averaged(data_set: str, variable: str) -> None:
    found = read("verl", {f"val-core/{data_set}/{variable}/mean@4": 7.0})

    assert ("validation_score" in found) == (variable in ("acc", "accuracy", "reward", "score"))


@pytest.mark.parametrize(
    ("framework", "score", "no_scores"),
    [
        ("verl", "val-core/{}/acc/mean@8", ("val-core/{}/overlong_reward/mean@8", "val-aux/{}/acc/std@8")),
        ("verl", "val-core/{}/reward/mean_at_8", ("val-core/{}/acc/best@8/mean",)),
        ("verl", "val-core_{}_acc_mean@8", ("val-core_{}_response_tokens_mean@8",)),
        ("verl", "rl_insight_monitor_val_core_{}_acc_mean_8", ()),
        ("verl", "rl_insight_monitor_val-core/{}/Acc/mean@8", ()),
        ("verl", "val/test_score/{}", ("val/{}/tool_call_count/mean",)),
        ("verl", "val/{}/test_score", ("val/{}_success_rate",)),
        ("slime", "eval/{}", ("eval/{}-truncated_ratio", "eval/{}-pass@8", "eval/{}/spec_accept_length")),
        ("openrlhf", "eval_{}_pass1", ("eval_{}_pass8",)),
        ("openrlhf", "eval/eval_{}_pass1", ()),
    ],
)
def test_the_score_is_the_mean_of_its_data_sets(
    framework: str, score: str, no_scores: tuple[str, ...]
) -> None:
    values = {key.format(name): 9.0 for key in no_scores for name in DATA_SETS}
    values |= {score.format(name): value for name, value in DATA_SETS.items()}
    reading = signals.Reading(framework)

    assert reading.signals(values)["validation_score"] == 0.5
    assert reading.parts(values) == OF_DATA_SETS


@pytest.mark.parametrize(
    ("framework", "score", "total"),
    [
        ("generic", "eval/{}/avg_score", "eval/all/avg_score"),
        ("generic", "test/env/{}/reward/total", "test/env/all/reward/total"),
        ("prime_rl", "val_reward/{}/mean", "val_reward/all/mean"),
        ("prime_rl", "val_reward/{}", "val_reward/mean"),
        ("roll", "val_correct/{}/mean", "val_correct/all/mean"),
    ],
)
def test_a_score_over_all_data_sets_is_none_of_them(framework: str, score: str, total: str) -> None:
    values = {total: 0.375, **{score.format(name): value for name, value in DATA_SETS.items()}}
    reading = signals.Reading(framework)

    assert reading.signals(values)["validation_score"] == 0.375
    assert reading.parts(values) == OF_DATA_SETS


def test_a_data_set_s_name_is_that_of_the_log() -> None:
    found = signals.Reading("verl").parts({f"{CORE}/acc/mean@8": 0.5, "val/test_score/openai/gsm8k": 0.25})

    assert found == {
        ("validation_component", "math/dapo"): 0.5,
        ("validation_component", "openai/gsm8k"): 0.25,
    }


@pytest.mark.parametrize("section", ["eval_", "eval/"])
@pytest.mark.parametrize("score", ["reward", "rewards/accuracies"])
def test_trl_s_evaluation_sets_are_named_by_the_record_s_other_keys(section: str, score: str) -> None:
    def evaluated(value: float, *names: str) -> dict[str, float]:
        named = {f"{section}{name}_{what}": 1.5 for name in names for what in ("loss", "runtime")}
        return {**named, f"{section}{score}": value, f"{section}reward_std": 0.125}

    reading = signals.Reading("trl")

    assert reading.parts(evaluated(0.5, "gsm8k")) == {("validation_component", "gsm8k"): 0.5}
    assert reading.parts(evaluated(0.25, "math_500")) == {("validation_component", "math_500"): 0.25}
    assert reading.parts({f"{section}{score}": 0.5, f"{section}runtime": 1.5}) == {}
    joined = evaluated(0.25, "gsm8k", "math_500")
    assert reading.parts(joined) == {}, "no one knows whose score it is"
    assert reading.signals(joined)["validation_score"] == 0.25


# names of one's own beside those of a trainer


def test_a_trainer_s_log_may_call_a_signal_what_home_made_loops_call_it() -> None:
    """A callback that writes TRL's numbers to a table, under names of its own."""
    own = {"loss": 0.1, "lr": 1e-6, "entropy": 0.2, "reward_std": 0.5, "clip_ratio": 0.0, "epoch": 0.1}
    found = read("", {**own, "reward_mean": 0.5, "completion_len": 128.0, "frac_zero_std": 0.25})

    assert (found["reward"], found["response_length"], found["zero_std_ratio"]) == (0.5, 128.0, 0.25)


def test_a_key_of_the_trainer_means_what_it_means_there() -> None:
    """AsyncGRPO's kl is that to the policy which generated, not to the reference."""
    found = read("", {"ratio": 1.0, "kl": 0.1, "reward": 0.5, "frac_reward_zero_std": 0.0, "step_time": 2.0})

    assert (found["policy_kl"], "kl" in found) == (0.1, False)


def test_a_signal_that_the_trainer_s_own_keys_carried_is_read_from_them_alone() -> None:
    reading = signals.Reading("")

    assert reading.signals({"loss": 0.1, "grad_norm": 1.0, "frac_reward_zero_std": 0.0})["loss"] == 0.1
    assert "loss" not in reading.signals({"train_loss": 0.5})


def test_open_instruct_is_known_by_its_keys() -> None:
    reading = signals.Reading("")
    found = reading.signals(
        {
            "scores": 3.5,
            "objective/verifiable_reward": 3.0,
            "val/sequence_lengths": 512.0,
            "objective/kl2_avg": 0.1,
        }
    )

    assert reading.framework == "open_instruct"
    assert found == {"reward": 3.5, "response_length": 512.0, "kl": 0.1}
    assert read("", {"objective/verifiable_reward": 3.0}) == {"reward": 3.0}


# the table


def test_every_signal_has_one_name_and_one_row() -> None:
    assert len(set(signals.NAMES)) == len(signals.NAMES)


def test_every_signal_with_statistics_is_in_the_table() -> None:
    assert {statistic.signal for statistic in STATISTICS} <= set(signals.NAMES)


@pytest.mark.parametrize("signal", signals.SIGNALS, ids=lambda signal: signal.name)
def test_help_is_one_sentence(signal: signals.Signal) -> None:
    assert signal.help.endswith(".")
    assert signal.help[:1].isupper()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_tables_hold_signals_of_the_catalogue_only(name: str) -> None:
    assert {signal for signal, _ in table(name)} <= set(signals.NAMES)


def test_every_signal_is_logged_by_some_framework_or_under_its_own_name() -> None:
    own = {signal for name in FRAMEWORKS if name != "generic" for signal, _ in table(name)}

    assert set(signals.NAMES) - own == set()
    for name in signals.NAMES:
        assert read("scoped", {name: 0.5}).get(name) == 0.5


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_key_carries_two_signals_but_the_loss_that_is_the_total_too(name: str) -> None:
    carried: dict[tuple[object, ...], set[str]] = {}
    for signal, keys in table(name):
        for key in keys:
            if key.formula is None:
                carried.setdefault((*key.names, key.when, key.unless), set()).add(signal)

    assert {frozenset(found) for found in carried.values() if len(found) > 1} <= {
        frozenset({"policy_loss", "loss"})
    }


def test_a_signal_that_is_not_logged_is_absent_and_never_zero() -> None:
    assert verl(critic__score__mean=0.5) == {"reward": 0.5}


def test_text_and_booleans_are_no_values() -> None:
    assert verl(critic__score__mean="n/a", actor__entropy=True) == {}


def test_a_key_whose_value_is_not_a_number_gives_way_to_the_next() -> None:
    assert verl(critic__score__mean="n/a", critic__rewards__mean=0.4) == {"reward": 0.4}


def test_not_finite_values_are_values() -> None:
    found = verl(critic__score__mean="nan", actor__grad_norm="inf", actor__pg_loss=None)

    assert math.isnan(found["reward"])
    assert found["grad_norm"] == math.inf
    assert math.isnan(found["policy_loss"])


# verl's keys over the versions


def test_kl_of_old_versions_is_read() -> None:
    assert verl(critic__kl=0.03) == {"kl": 0.03}


def test_entropy_loss_of_old_versions_is_the_entropy() -> None:
    assert verl(actor__entropy_loss=0.4) == {"entropy": 0.4}
    assert verl(actor__entropy_loss=0.1, actor__entropy=0.4) == {"entropy": 0.4}


def test_score_before_the_kl_penalty_wins_over_the_reward_after_it() -> None:
    found = verl(
        **{
            f"critic__{what}__{of}": value
            for what, value in (("score", 0.5), ("rewards", 0.4))
            for of in ("mean", "max", "min")
        }
    )

    assert found == {"reward": 0.5, "reward_max": 0.5, "reward_min": 0.5}


def test_rewards_alone_are_the_reward() -> None:
    assert verl(critic__rewards__mean=0.4) == {"reward": 0.4}


@pytest.mark.parametrize("key", ["perf/time_per_step", "timing_s/step", "timing/step"])
def test_step_time_is_in_seconds_under_all_its_names(key: str) -> None:
    assert read("verl", {key: 33.4})["step_seconds"] == 33.4


@pytest.mark.parametrize("section", ["timing_s", "timing"])
def test_phases_are_in_seconds_under_their_old_and_new_names(section: str) -> None:
    found = read("verl", {f"{section}/gen": 20.5, f"{section}/update_actor": 10.25})

    assert found == {"rollout_seconds": 20.5, "update_actor_seconds": 10.25}


def test_times_per_token_are_in_seconds_and_their_inverse_is_the_cluster_s_speed() -> None:
    found = read("verl", {"timing_per_token_ms/gen": 0.25})

    assert found == {"rollout_seconds_per_token": 0.00025, "rollout_tokens_per_second": 4000.0}


def test_no_time_per_token_gives_no_speed() -> None:
    assert "rollout_tokens_per_second" not in read("verl", {"timing_per_token_ms/gen": 0.0})


@pytest.mark.parametrize("seconds", [0.0, None])
def test_tokens_per_second_needs_a_time(seconds: float | None) -> None:
    written = {"perf/total_num_tokens": 8000} | ({} if seconds is None else {"perf/time_per_step": seconds})

    assert "tokens_per_second" not in read("verl", written)


def test_validation_is_the_mean_of_the_core_metric_over_the_data_sets() -> None:
    found = read(
        "verl",
        {
            "val-core/openai/gsm8k/acc/mean@8": 0.5,
            "val-core/aime/acc/mean@32": 0.25,
            "val-core/aime/acc/best@32/mean": 1.0,
            "val-aux/aime/reward/mean@32": 9.0,
        },
    )

    assert found == {"validation_score": 0.375}


@pytest.mark.parametrize(
    "key", ["val/test_score/openai/gsm8k", "test_score/openai/gsm8k", "val/nq/test_score"]
)
def test_validation_of_old_versions_is_read(key: str) -> None:
    assert read("verl", {key: 0.5}) == {"validation_score": 0.5}


def test_a_data_set_that_has_no_score_makes_the_validation_not_finite() -> None:
    values = {"val-core/a/acc/mean@1": None, "val-core/b/acc/mean@1": 0.5}

    assert math.isnan(read("verl", values)["validation_score"])


# traps of verl's names (log-formats.md 2.6), in its order


def test_losses_that_legacy_workers_add_up_are_passed_on_as_they_are() -> None:
    found = verl(actor__pg_loss=8.0, actor__kl_loss=4.0, critic__vf_loss=2.0)

    assert found == {"policy_loss": 8.0, "kl": 4.0, "value_loss": 2.0}


def test_kl_loss_zero_gives_way_to_the_penalty_that_is_in_use() -> None:
    assert verl(actor__kl_loss=0.0, actor__reward_kl_penalty=0.25) == {"kl": 0.25}
    assert verl(actor__kl_loss="0.000", actor__reward_kl_penalty="0.25") == {"kl": 0.25}
    assert verl(actor__kl_loss=0.0) == {"kl": 0.0}


def test_kl_loss_in_use_wins_over_the_penalty() -> None:
    assert verl(actor__kl_loss=0.1, actor__reward_kl_penalty=0.25) == {"kl": 0.1}


def test_kl_loss_that_is_nan_does_not_hide_behind_the_penalty() -> None:
    assert math.isnan(verl(actor__kl_loss=None, actor__reward_kl_penalty=0.25)["kl"])


@pytest.mark.parametrize("prefix", ["", "actor/"])
def test_memory_is_in_gib_under_its_old_and_its_new_name(prefix: str) -> None:
    written = {
        f"{prefix}perf/max_memory_allocated_gb": 2,
        f"{prefix}perf/max_memory_reserved_gb": "3.0",
        f"{prefix}perf/cpu_memory_used_gb": "np.float64(4.5)",
    }

    assert read("verl", written) == {
        "gpu_memory_allocated_bytes": 2 * GIB,
        "gpu_memory_reserved_bytes": 3 * GIB,
        "host_memory_used_bytes": 4.5 * GIB,
    }


def test_memory_of_the_actor_wins_over_the_memory_of_no_one_in_particular() -> None:
    found = read("verl", {"actor/perf/cpu_memory_used_gb": 2, "perf/cpu_memory_used_gb": 9})

    assert found == {"host_memory_used_bytes": 2 * GIB}


def test_memory_of_the_critic_is_not_the_actors() -> None:
    found = read("verl", {"critic/perf/max_memory_allocated_gb": 9})

    assert found == {"critic_gpu_memory_allocated_bytes": 9 * GIB}


def test_step_time_leaves_out_validation() -> None:
    found = read("verl", {"perf/time_per_step": 30.0, "timing_s/testing": 900.0})

    assert found == {"step_seconds": 30.0, "validation_seconds": 900.0}


def test_throughput_is_per_gpu_and_tokens_over_time_is_over_all() -> None:
    found = verl(perf__throughput=100.0, perf__total_num_tokens=8000, perf__time_per_step=10.0)

    assert found["tokens_per_second_per_gpu"] == 100.0
    assert found["tokens_per_second"] == 800.0


def test_mfu_of_inference_is_not_the_update_s() -> None:
    found = read("verl", {"perf/mfu/actor_infer": 0, "perf/mfu/actor": 0.4})

    assert found == {"inference_mfu_ratio": 0.0, "mfu_ratio": 0.4}


V1_MARKS = ["training/num_turns/mean", "training/off_policy/trajectory_staleness/mean"]
V0 = {"response_length/clip_ratio": 0.25, "response_length/max": 512.0}


def truncated(*records: dict[str, float], limit: int | None = None) -> list[float | None]:
    """The truncated share of each record of a run."""
    reading, truncation, shares = signals.Reading("verl"), Truncation(), []
    for values in records:
        found = reading.signals(values)
        truncation.correct(found, values, limit)
        shares.append(found.get("truncated_ratio"))
    return shares


@pytest.mark.parametrize("key", [*V1_MARKS, "training_num_turns_mean"])
def test_v1_clip_ratio_is_the_truncated_share_only_at_the_known_limit(key: str) -> None:
    v1 = {**V0, key: 2.0}

    assert truncated(v1, limit=512) == [0.25]
    assert truncated(v1, limit=1024) == [0.0]
    assert truncated(v1, limit=None) == [None]


def test_v0_clip_ratio_is_the_truncated_share() -> None:
    assert truncated(V0, limit=None) == [0.25]
    assert truncated(V0, limit=1024) == [0.25]


def lengths(*longest: float, share: float = 0.125, **more: float) -> list[dict[str, float]]:
    """Records of batches whose longest response has that many tokens."""
    return [{"response_length/clip_ratio": share, "response_length/max": each, **more} for each in longest]


def test_v1_without_a_known_limit_reports_truncation_once_batches_end_at_the_same_length() -> None:
    """Event files and CSV hold no limit: no response is longer than the one that several batches reach."""
    found = truncated(*lengths(300, 512, 512, 512, 400, 512, **{V1_MARKS[0]: 2.0}))

    assert found == [None, None, None, 0.125, 0.0, 0.125]


def test_a_longer_response_than_all_before_ends_what_was_thought_of_the_limit() -> None:
    found = truncated(*lengths(40, 40, 40, 90, 40, **{V1_MARKS[0]: 2.0}))

    assert found == [None, None, 0.125, None, 0.0]


def test_a_share_that_is_never_zero_whatever_the_longest_length_is_relative_to_the_batch() -> None:
    """A CSV that was exported without the keys by which v1 is known."""
    found = truncated(*lengths(300, 310, 290, 320, 320, 320))

    assert found == [0.125, None, 0.0, None, None, 0.125]


def test_a_share_that_is_zero_below_one_length_is_the_truncated_one_from_the_start() -> None:
    below, cut = {"response_length/clip_ratio": 0.0, "response_length/max": 300.0}, lengths(512, 512)

    assert truncated(below, *cut, below) == [0.0, 0.125, 0.125, 0.0]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=30),
    st.integers(1, 40),
    st.booleans(),
)
def test_v1_reports_the_share_that_reached_the_limit_and_never_another(
    batches: list[list[int]], limit: int, reported: bool
) -> None:
    cut = [[min(length, limit) for length in batch] for batch in batches]
    records = [
        {
            "response_length/clip_ratio": batch.count(max(batch)) / len(batch),
            "response_length/max": float(max(batch)),
            V1_MARKS[0]: 1.0,
        }
        for batch in cut
    ]
    found = truncated(*records, limit=limit if reported else None)

    for batch, share in zip(cut, found, strict=True):
        if reported:
            assert share == (batch.count(limit) / len(batch) if max(batch) == limit else 0.0)
        elif share:
            assert share == batch.count(max(batch)) / len(batch)


def test_v1_without_the_longest_response_is_believed_at_a_known_limit() -> None:
    v1 = {"response_length/clip_ratio": 0.25, "training/num_turns/mean": 2.0}

    assert truncated(v1, limit=512) == [0.25]


def test_the_response_limit_is_read_from_the_printed_configuration() -> None:
    source = VerlConsole()
    (limit,) = source.parse(b"  'max_response_length': 1024,")
    (record,) = source.parse(
        b"step:1 - response_length/clip_ratio:0.125 - response_length/max:700 - training/num_turns/mean:2.0"
    )
    assert isinstance(limit, ResponseLimit)
    assert isinstance(record, Record)

    assert truncated(dict(record.values), limit=limit.tokens) == [0.0]


@pytest.mark.parametrize("key", V1_MARKS)
def test_v1_clip_ratio_of_prompts_says_nothing(key: str) -> None:
    reading = signals.Reading("verl")

    assert reading.signals({"prompt_length/clip_ratio": 0.25}) == {"prompt_truncated_ratio": 0.25}
    assert "prompt_truncated_ratio" not in reading.signals({"prompt_length/clip_ratio": 0.25, key: 2.0})
    assert reading.signals({"prompt_length/clip_ratio": 0.25}) == {}


def test_waiting_of_the_asynchronous_trainer_has_its_own_signal() -> None:
    found = read("verl", {"timing_s/gen": 20.0, "fully_async/total_wait_time": 5.0})

    assert found == {"rollout_seconds": 20.0, "wait_seconds": 5.0}


def test_reward_time_that_v1_does_not_log_is_absent() -> None:
    assert "reward_seconds" not in read("verl", {"timing_s/gen": 20.0, "training/num_turns/mean": 2.0})


def test_counts_below_timing_are_no_times() -> None:
    found = read(
        "verl",
        {
            "timing_s/agent_loop/num_preempted/mean": 3,
            "timing_s/agent_loop/slowest/prompt_length": 500,
        },
    )

    assert found == {"preemptions": 3.0}


def test_minus_one_preemption_is_not_reported() -> None:
    assert read("verl", {"timing_s/agent_loop/num_preempted/mean": -1}) == {}


def test_keys_below_critic_are_there_without_a_critic() -> None:
    found = read(
        "verl", {"critic/score/mean": 0.5, "critic/advantages/mean": 0.1, "critic/returns/mean": 0.2}
    )

    assert found == {"reward": 0.5, "advantage_mean": 0.1, "return_mean": 0.2}


def test_differences_of_probabilities_are_none_of_log_probabilities() -> None:
    found = read("verl", {"training/rollout_probs_diff_mean": 0.01, "training/rollout_probs_diff_max": 0.5})

    assert found == {"engine_prob_diff": 0.01, "engine_prob_diff_max": 0.5}


def test_verl_logs_no_standard_deviation_of_the_reward() -> None:
    assert read("verl", {"val-aux/aime/reward/std@8": 0.5, "gdpo/format/std": 0.5}) == {}


def test_a_batch_whose_samples_were_all_aborted_has_a_reward_that_is_not_finite() -> None:
    assert math.isnan(verl(critic__rewards__mean=None)["reward"])


def test_entropy_is_one_signal_whether_it_was_measured_before_or_in_the_update() -> None:
    assert verl(actor__entropy=0.4) == verl(actor__entropy_loss=0.4) == {"entropy": 0.4}


# kinds of KL divergence (failure-modes.md 1.4)


def test_kl_between_updates_is_another_signal() -> None:
    assert verl(actor__ppo_kl=0.1, actor__kl_loss=0.2) == {"policy_kl": 0.1, "kl": 0.2}


@pytest.mark.parametrize(
    ("framework", "key", "signal"),
    [
        ("trl", "objective/kl", "kl_sequence"),
        ("trl", "kl", "kl"),
        ("trl", "policy/approxkl_avg", "policy_kl"),
        ("verl", "rollout_corr/kl", "kl_engine"),
        ("openrlhf", "vllm_kl", "kl_engine"),
        ("openrlhf", "kl", "kl"),
        ("nemo_rl", "train/gen_kl_error", "kl_engine"),
        ("slime", "train/mismatch_kl", "kl_engine"),
        ("slime", "rollout/opd_reverse_kl", "kl_teacher"),
        ("generic", "teacher_kl", "kl_teacher"),
        ("generic", "optim/kl_sample_train_v1", "kl_engine"),
    ],
)
def test_each_kind_of_kl_is_a_signal_of_its_own(framework: str, key: str, signal: str) -> None:
    assert read(framework, {key: 0.5}) == {signal: 0.5}


def test_what_importance_weights_leave_of_the_samples_is_a_share() -> None:
    found = verl(rollout_corr__rollout_is_eff_sample_size=0.8, rollout_corr__rollout_is_mean=1.1)

    assert found == {"engine_effective_sample_ratio": 0.8, "engine_importance_weight": 1.1}


def test_a_part_of_the_reward_is_the_true_one_once_its_user_says_so() -> None:
    values = {"reward": 0.9, "rewards/format/mean": 0.8, "rewards/accuracy/mean": 0.1}
    named = signals.Reading("trl", {"true_reward": ["rewards/accuracy/mean"]})

    assert "true_reward" not in signals.Reading("trl").signals(values)
    assert named.signals(values) == {"reward": 0.9, "true_reward": 0.1}


def test_kl_of_the_asynchronous_trl_trainer_is_not_to_the_reference() -> None:
    assert read("trl", {"kl": 0.1, "ratio": 1.0}) == {"policy_kl": 0.1, "importance_weight": 1.0}


def test_areal_s_kl_has_the_other_sign() -> None:
    found = read(
        "areal",
        {"ppo_actor/update/approx_kl/avg": -0.1, "ppo_actor/update/behave_approx_kl/avg": -0.2},
    )

    assert found == {"policy_kl": 0.1, "kl_engine": 0.2}


# values that are made of others


def test_groups_that_all_failed_or_all_succeeded_have_no_spread() -> None:
    both = {"train/baseline_reward/pct_0": 30.0, "train/baseline_reward/pct_1": 20.0}

    assert read("nemo_rl", both)["zero_std_ratio"] == pytest.approx(0.5)


def test_areal_s_step_is_the_sum_of_its_parts_without_validation() -> None:
    values = {"timeperf/rollout": 50.0, "timeperf/train_step": 20.0, "timeperf/eval": 900.0}

    assert read("areal", values)["step_seconds"] == 70.0


def test_slime_s_normalised_reward_is_not_a_reward() -> None:
    assert read("slime", {"rollout/rewards": 0.0, "rollout/raw_reward": 0.375}) == {"reward": 0.375}


def test_slime_s_validation_leaves_out_all_but_the_scores() -> None:
    found = read(
        "slime",
        {
            "eval/aime": 0.25,
            "eval/gsm8k": 0.75,
            "eval/aime-truncated_ratio": 1.0,
            "eval/aime-pass@8": 1.0,
            "eval/aime/response_len/mean": 300.0,
            "eval/aime/response_len/max": 400.0,
            "eval/aime/prefix_cache_hit_rate": 0.9,
            "eval/aime/avg_cached_tokens_per_sample": 900.0,
            "eval/aime/zero_std/count_0.0": 12.0,
            "eval/aime/spec_accept_rate": 0.7,
            "eval/aime/error_cat/eval_timeout": 3.0,
            "eval/step": 20,
        },
    )

    assert found == {"validation_score": 0.5, "validation_response_length": 300.0}


@pytest.mark.parametrize(("written", "ratio"), [(0.5, 0.5), (50.0, 0.5), (0.0, 0.0), (100, 1.0)])
def test_gpu_utilisation_is_a_share_or_a_percentage(written: float, ratio: float) -> None:
    assert read("generic", {"gpu_utilization": written}) == {"gpu_utilization_ratio": ratio}


def test_ms_swift_s_speed_and_memory_are_in_base_units() -> None:
    found = read("trl", {"memory(GiB)": 56.5, "train_speed(iter/s)": 0.25})

    assert found == {"gpu_memory_used_bytes": 56.5 * GIB, "step_seconds": 4.0}


HAND_MADE = {
    "verl_average_reward": "reward",
    "reward_mean": "reward",
    "verl_sample_generation_seconds": "sample_generation_seconds",
    "verl_gpu_memory_used_bytes": "gpu_memory_used_bytes",
    "reward_std": "reward_std",
    "kl_divergence": "kl",
    "entropy": "entropy",
    "critic_loss": "value_loss",
    "actor_loss": "policy_loss",
    "rollout_latency_seconds": "rollout_seconds",
    "gpu_utilization": "gpu_utilization_ratio",
}


@pytest.mark.parametrize(("key", "signal"), HAND_MADE.items())
def test_hand_made_metrics_are_known(key: str, signal: str) -> None:
    assert read("generic", {key: 0.5}) == {signal: 0.5}

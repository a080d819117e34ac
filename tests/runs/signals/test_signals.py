"""Which key carries which signal, and the keys that mean something else than they say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs import signals
from exporter.runs.formats.line_consoles import VerlConsole
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.reading import table
from exporter.runs.signals.record import Record, ResponseLimit
from exporter.runs.signals.tables import frameworks
from exporter.runs.signals.truncation import Truncation

GIB = 1024**3


def read(framework: str, values: dict[str, Any]) -> dict[str, float]:
    return signals.Reading(framework).signals(values)


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


def test_every_signal_is_logged_by_some_framework_or_under_its_own_name() -> None:
    own = {signal for name in frameworks() if name != "generic" for signal, _ in table(name)}

    assert set(signals.NAMES) - own == set()
    for name in signals.NAMES:
        assert read("scoped", {name: 0.5}).get(name) == 0.5


@pytest.mark.parametrize("name", frameworks())
def test_no_key_carries_two_signals_but_the_loss_that_is_the_total_too(name: str) -> None:
    carried: dict[tuple[object, ...], set[str]] = {}
    for signal, keys in table(name):
        for key in keys:
            if key.formula is None:
                carried.setdefault((*key.names, key.when, key.unless), set()).add(signal)

    assert {frozenset(found) for found in carried.values() if len(found) > 1} <= {
        frozenset({"policy_loss", "loss"})
    }


# the truncated share of verl


V1_MARKS = ["training/num_turns/mean", "training/off_policy/trajectory_staleness/mean"]
V0 = {"response_length/clip_ratio": 0.25, "response_length/max": 512.0}


def truncated(
    *records: dict[str, float], limit: int | None = None, framework: str = "verl"
) -> list[float | None]:
    """The truncated share of each record of a run."""
    reading, truncation, shares = signals.Reading(framework), Truncation(), []
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


def test_roll_compares_with_the_longest_of_the_batch_too() -> None:
    batches = [
        {"token/total_response_length/clip": 0.125, "token/response_length/max": each}
        for each in (512.0, 512.0, 512.0, 400.0)
    ]

    assert truncated(*batches, framework="roll") == [None, None, 0.125, 0.0]


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


# every trap of a trainer's names (log-formats.md 2.6, failure-modes.md 1.4), each a row


MEANT = """
# validation
verl: val-core/a/acc/mean@8=0.5 val-core/b/acc/mean@32=0.25 -> validation_score=0.375
verl: val-core/a/acc/best@8/mean=1.0 val-aux/a/reward/mean@8=9.0 -> nothing
verl: val/test_score/openai/gsm8k=0.5 -> validation_score=0.5
verl: test_score/openai/gsm8k=0.5 -> validation_score=0.5
verl: val-core/a/acc/mean@1=None val-core/b/acc/mean@1=0.5 -> validation_score=nan
trl: eval_reward=0.5 -> validation_score=0.5
trl: eval/reward=0.5 -> validation_score=0.5
slime: eval/aime=0.25 eval/aime-truncated_ratio=1.0 eval/aime-pass@8=1.0 eval/aime/response_len/mean=300.0
    eval/aime/prefix_cache_hit_rate=0.9 eval/aime/zero_std/count_0.0=12.0
    eval/aime/error_cat/eval_timeout=3.0 eval/gsm8k=0.75 eval/step=20
    -> validation_score=0.5 validation_response_length=300
# what is no value is absent, never zero; what is not finite is a value
verl: critic/score/mean=n/a actor/entropy=True -> nothing
verl: critic/score/mean=n/a critic/rewards/mean=0.4 -> reward=0.4
verl: critic/score/mean=nan actor/grad_norm=inf -> reward=nan grad_norm=inf
verl: critic/rewards/mean=None -> reward=nan  # all samples aborted
trl: train_loss=0.5 train_runtime=10.0 -> nothing  # a summary
# before the KL penalty, else after it
verl: critic/score/mean=0.5 critic/score/max=0.5 critic/score/min=0.5 critic/rewards/mean=0.4
    critic/rewards/max=0.4 critic/rewards/min=0.4
    -> reward=0.5 reward_max=0.5 reward_min=0.5
verl: val-aux/aime/reward/std@8=0.5 gdpo/format/std=0.5 -> nothing
slime: rollout/rewards=0.0 rollout/raw_reward=0.375 -> reward=0.375  # normalised
# old names of verl, and losses that its legacy workers add up
verl: actor/entropy_loss=0.4 -> entropy=0.4
verl: actor/entropy_loss=0.1 actor/entropy=0.4 -> entropy=0.4
verl: actor/pg_loss=8.0 critic/vf_loss=2.0 -> policy_loss=8 value_loss=2
# KL: a loss of zero gives way to the penalty that is in use
verl: critic/kl=0.03 -> kl=0.03
verl: actor/kl_loss=0.0 actor/reward_kl_penalty=0.25 -> kl=0.25
verl: actor/kl_loss=0.000 actor/reward_kl_penalty=0.25 -> kl=0.25
verl: actor/kl_loss=0.0 -> kl=0
verl: actor/kl_loss=0.1 actor/reward_kl_penalty=0.25 -> kl=0.1
verl: actor/kl_loss=None actor/reward_kl_penalty=0.25 -> kl=nan
# KL is at least five numbers
verl: actor/ppo_kl=0.1 actor/kl_loss=0.2 -> policy_kl=0.1 kl=0.2
verl: rollout_corr/kl=0.5 -> kl_engine=0.5
trl: objective/kl=0.5 -> kl_sequence=0.5
trl: policy/approxkl_avg=0.5 -> policy_kl=0.5
trl: kl=0.1 ratio=1.0 -> policy_kl=0.1 importance_weight=1  # AsyncGRPO's
openrlhf: vllm_kl=0.5 kl=0.1 -> kl_engine=0.5 kl=0.1
nemo_rl: train/gen_kl_error=0.5 -> kl_engine=0.5
slime: train/mismatch_kl=0.5 rollout/opd_reverse_kl=0.1 -> kl_engine=0.5 kl_teacher=0.1
# k1 has signs, and its errors cancel
verl: rollout_corr/kl=-0.00005 rollout_corr/k3_kl=0.002 -> kl_engine=0.002
trl: rollout_correction/kl=-0.00005 rollout_correction/k3_kl=0.002 -> kl_engine=0.002
slime: train/mismatch_kl=-0.00005 train/mismatch_k3_kl=0.002 -> kl_engine=0.002
generic: optim/kl_sample_train_v1=-0.00005 optim/kl_sample_train_v2=0.002 -> kl_engine=0.002
prime_rl: trainer_mismatch_kl=0.0 -> nothing  # not measured
# the mean of a sequence, and a difference with signs, are no mean difference of tokens
verl: rollout_corr/log_ppl_abs_diff=0.004 -> nothing
roll: actor/train_infer_diff_mean=-0.01 actor/train_infer_diff_token_mean=-0.01 -> nothing
roll: critic/entropy/mean=0.0 -> nothing  # not computed
# a trainer's percentages; ratios in spite of their names
open_instruct: learner_mfu=35.0 batch/filtered_prompts_pct=0.25 -> mfu_ratio=0.35 filtered_group_ratio=0.25
# DAPO's times are those of the last of its rounds
verl: train/num_gen_batches=3 timing_s/step=375.0 timing_s/gen=300.0 perf/time_per_step=375.0
    perf/total_num_tokens=8000 perf/throughput=100.0 timing_per_token_ms/gen=0.25 timing_s/update_actor=40.0
    -> generation_rounds=3 step_tokens=8000 update_actor_seconds=40
verl: train/num_gen_batches=1 timing_s/step=375.0 timing_s/gen=300.0 perf/total_num_tokens=7500
    -> generation_rounds=1 step_seconds=375 rollout_seconds=300 step_tokens=7500 tokens_per_second=20
# pairs in preference training, tokens in distillation
nemo_rl: train/accuracy=0.75 -> nothing
nemo_rl: train/accuracy=0.75 train/rewards_chosen_mean=1.5
    -> preference_accuracy=0.75 preference_reward_chosen=1.5
trl: accuracy=0.75 current_steps=10 -> preference_accuracy=0.75  # LLaMA-Factory's
trl: accuracy=0.75 -> nothing
# no drafts, no calls, a pause, several outcomes of which one is none
nemo_rl: train/vllm/spec_acceptance_rate=0.0 train/vllm/spec_num_drafts=0 -> nothing
nemo_rl: train/vllm/spec_acceptance_rate=0.75 train/vllm/spec_num_drafts=9 -> spec_accept_ratio=0.75
open_instruct: tools/aggregate/failure_rate=0.0 tools/aggregate/avg_calls_per_rollout=0.0 -> tool_calls=0
areal: timeperf/rollout=50.0 timeperf/rollout_pause=9.0 -> step_seconds=50 rollout_seconds=50
generic: teacher_kl=0.5 -> kl_teacher=0.5
generic: optim/kl_sample_train_v1=0.5 -> kl_engine=0.5
areal: ppo_actor/update/approx_kl/avg=-0.1 -> policy_kl=0.1  # the other sign
# times and speeds
verl: timing/step=33.4 -> step_seconds=33.4
verl: perf/time_per_step=30.0 timing_s/testing=9.0 -> step_seconds=30 validation_seconds=9
verl: timing/gen=20.5 timing/update_actor=1.0 -> rollout_seconds=20.5 update_actor_seconds=1
verl: timing_s/gen=20.0 fully_async/total_wait_time=5.0 -> rollout_seconds=20 wait_seconds=5
verl: timing_s/gen=20.0 training/num_turns/mean=2.0 -> rollout_seconds=20 turns=2  # no reward's time
verl: timing_per_token_ms/gen=0.25 -> rollout_seconds_per_token=0.00025 rollout_tokens_per_second=4000
verl: timing_per_token_ms/gen=0.0 -> rollout_seconds_per_token=0
verl: perf/throughput=100.0 -> tokens_per_second_per_gpu=100
verl: perf/total_num_tokens=8000 perf/time_per_step=10.0
    -> step_tokens=8000 step_seconds=10 tokens_per_second=800
verl: perf/total_num_tokens=8000 perf/time_per_step=0.0 -> step_tokens=8000 step_seconds=0
verl: timing_s/agent_loop/num_preempted/mean=3 timing_s/agent_loop/slowest/prompt_length=500
    -> preemptions=3
verl: timing_s/agent_loop/num_preempted/mean=-1 -> nothing
areal: timeperf/rollout=50.0 timeperf/train_step=20.0 timeperf/eval=9.0
    -> step_seconds=70 rollout_seconds=50 update_actor_seconds=20 validation_seconds=9
# memory and load
verl: perf/max_memory_allocated_gb=2 perf/cpu_memory_used_gb=np.float64(4.5)
    -> gpu_memory_allocated_bytes=2GiB host_memory_used_bytes=4.5GiB
verl: actor/perf/cpu_memory_used_gb=2 perf/cpu_memory_used_gb=9 -> host_memory_used_bytes=2GiB
verl: critic/perf/max_memory_allocated_gb=9 -> critic_gpu_memory_allocated_bytes=9GiB
verl: perf/mfu/actor_infer=0 perf/mfu/actor=0.4 -> inference_mfu_ratio=0 mfu_ratio=0.4
trl: memory(GiB)=56.5 train_speed(iter/s)=0.25 -> gpu_memory_used_bytes=56.5GiB step_seconds=4
generic: gpu_utilization=50.0 -> gpu_utilization_ratio=0.5
generic: gpu_utilization=0.5 -> gpu_utilization_ratio=0.5
# below critic/ without a critic; probabilities are no log probabilities; shares of samples
verl: critic/advantages/mean=0.1 critic/returns/mean=0.2 -> advantage_mean=0.1 return_mean=0.2
verl: training/rollout_probs_diff_mean=0.01 -> engine_prob_diff=0.01
verl: rollout_corr/rollout_is_eff_sample_size=0.8 rollout_corr/rollout_is_mean=1.1
    -> engine_effective_sample_ratio=0.8 engine_importance_weight=1.1
nemo_rl: train/baseline_reward/pct_0=30.0 train/baseline_reward/pct_1=20.0 -> zero_std_ratio=0.5
# home-made loops
generic: verl_average_reward=0.5 kl_divergence=0.1 entropy=0.2 -> reward=0.5 kl=0.1 entropy=0.2
generic: reward_mean=0.5 reward_std=0.1 verl_gpu_memory_used_bytes=7
    -> reward=0.5 reward_std=0.1 gpu_memory_used_bytes=7
generic: critic_loss=0.5 actor_loss=0.1 -> value_loss=0.5 policy_loss=0.1
generic: verl_sample_generation_seconds=5.0 rollout_latency_seconds=0.5
    -> sample_generation_seconds=5 rollout_seconds=0.5
"""
"""Trainer, what it logs, and the signals that this is; texts and None stand for values that are none."""
LITERALS = {"None": None, "True": True}
PAIR = re.compile(r"(\S+)=(\S+)")


def rows(table: str) -> list[str]:
    return [row for row in re.sub(r"\n    | *#.*", " ", table).split("\n") if row.strip()]


def expected(meant: str) -> dict[str, float]:
    return {
        name: float(value.removesuffix("GiB")) * (GIB if value.endswith("GiB") else 1)
        for name, value in PAIR.findall(meant)
    }


@pytest.mark.parametrize("row", rows(MEANT))
def test_a_key_is_the_signal_it_means_in_its_unit(row: str) -> None:
    framework, logged, meant = re.split(r": |->", row)
    found = read(framework, {key: LITERALS.get(value, value) for key, value in PAIR.findall(logged)})

    assert found == pytest.approx(expected(meant), nan_ok=True)


LOGGED = """
verl: critic/score/mean=0.5 actor/entropy=0.4 tool_call_counts/mean=2.07 rollout/spec_accept_rate=0.75
    training/filter_groups/evicted_samples=12 training/rollout_failure/evicted_samples=2
    rollout/moe/max_vio/avg=0.5 rollout_corr/rollout_rs_masked_fraction=0.01
    -> reward=0.5 entropy=0.4 tool_calls=2.07 spec_accept_ratio=0.75 groups_filtered=12 rollouts_failed=2
    moe_load_violation=0.5 engine_masked_ratio=0.01
verl: critic/score/mean=0.5 training/reward=0.75 training/n_rollouts=64 training/n_rollouts_w_reward=48
    training/n_groups=8 training/n_zero_adv_groups=2 training/n_sample=128 training/n_truncated_sample=32
    val/reward=0.25 val/turn_count=3
    -> reward=0.5 rollout_failure_ratio=0.25 zero_std_ratio=0.25 truncated_ratio=0.25 validation_score=0.25
trl: reward=0.5 frac_reward_zero_std=0.7 completions/clipped_ratio=0.25 tools/call_frequency=1.05
    tools/failure_frequency=0.33 sampling/sampling_logp_difference/mean=0.02 entropy_coef=9 aux_loss=9
    sampling/sampling_logp_difference/max=2.5
    -> reward=0.5 zero_std_ratio=0.7 truncated_ratio=0.25 tool_calls=1.05 tool_failure_ratio=0.33
    engine_logprob_diff=0.02
trl: kl=0.1 ratio=1.0 perf/step_s=8.0 perf/fwd_bwd_s=4.0 perf/weight_sync_s=1.0 perf/rollout_wait_s=2.0
    perf/mfu_fwd_bwd=35.0 perf/forwarded_tok_s_wall_clock=900.0 rollout/generated_tok_s=500.0
    rollout/turns_mean=3.0 rollout/duration_s=6.0 sample/staleness_mean=1.5 sample/staleness_max=3
    sample/rollout_queue_size=7 sample/dropped_stale_total=4 tools/latency_s=0.5 rollout/score_s=9.0
    batch/masked_token_frac=0.9
    -> policy_kl=0.1 importance_weight=1 step_seconds=8 update_actor_seconds=4 weight_sync_seconds=1
    wait_seconds=2 trainer_idle_ratio=0.25 mfu_ratio=0.35 tokens_per_second=900 rollout_tokens_per_second=500
    turns=3 sample_generation_seconds=6 staleness=1.5 staleness_max=3 rollout_queue_size=7
    stale_samples_dropped=4 tool_call_seconds=0.5
trl: reward=0.5 frac_reward_zero_std=0.25 num_turns=2.0 entropy/mean=0.4 teacher_kl=0.3
    rollout_correction/log_ppl_abs_diff=9 rollout_correction/is_weight_mean=1.1 rollout_correction/ess=0.9
    rollout_correction/clipped_frac=0.05
    -> reward=0.5 zero_std_ratio=0.25 turns=2 entropy=0.4 kl_teacher=0.3 engine_importance_weight=1.1
    engine_effective_sample_ratio=0.9 engine_masked_ratio=0.05
skyrl: reward/avg_raw_reward=0.5 reward/num_zero_variance_filtered=12 policy/policy_entropy=0.4
    policy/loss_metrics/clip_ratio=0.1 policy/loss_metrics/is_ratio_mean=1.1
    policy/loss_metrics/tis_token_clip_high_ratio=0.02 policy/rollout_train_logprobs_abs_diff_mean=0.01
    loss/avg_kl=0.03 loss/kl_loss_coef=0.001 trainer/epoch=2 timing/step=40.0 timing/run_training=20.0
    timing/wait_for_generation_buffer=10.0 async/staleness_mean=1.5 async/staleness_max=3
    async/staleness_ratio=0.75 async/keep_rate=0.75 async/gen_buffer_qsize_at_wait_start=5
    vllm/train/draft_acceptance_rate=0.75 rollout_metrics/error_runtime=3.5
    rollout_metrics/tool_calls_per_traj_mean=4.4 rollout_metrics/avg_turn_assistant=6.0
    -> reward=0.5 groups_filtered=12 entropy=0.4 policy_clip_ratio=0.1 engine_importance_weight=1.1
    engine_masked_ratio=0.02 engine_logprob_diff=0.01 kl=0.03 kl_coefficient=0.001 epoch=2 step_seconds=40
    update_actor_seconds=20 wait_seconds=10 trainer_idle_ratio=0.25 staleness=1.5 staleness_max=3
    filtered_group_ratio=0.25 rollout_queue_size=5 spec_accept_ratio=0.75 tool_calls=4.4 turns=6
skyrl: reward/avg_raw_reward=0.5 trainer/epoch=2 rollout_metrics/error_runtime=0.2
    rollout_metrics/error_evaluation=0.05
    -> reward=0.5 epoch=2 rollout_failure_ratio=0.25
prime_rl: train/agg/effective/a/reward/mean=0.25 train/agg/effective/b/reward/mean=0.75
    train/agg/effective/a/reward/max=1.0 train/agg/effective/b/reward/max=2.0
    train/agg/effective/a/reward/min=-1.0 train/agg/effective/b/reward/min=0.0
    train/agg/effective/a/num_output_tokens/mean=300 train/agg/effective/a/num_output_tokens/max=900
    train/agg/effective/a/num_input_tokens/mean=100 train/agg/effective/a/is_truncated/mean=0.1
    train/agg/effective/a/num_turns/mean=2 train/agg/all/has_error/mean=0.031 train/agg/all/cancelled/mean=0.2
    train/agg/all/a/solved_none=0.125 train/agg/all/a/solved_all=0.5 train/agg/all/a/error/timeout=9
    train/math/env/effective/a/reward/mean=0.5 eval/aime/all/a/avg@8=0.25 eval/aime/effective/a/avg@8=0.9
    off_policy/mean=1.5 off_policy/max=3 off_policy/dropped=4 dispatcher/off_policy/mean=9
    time/wait_for_policy=9 is_masked/mean=0.02 masked_advantage_positive/mean=9 max_vio/mean=0.5
    progress/total_tokens=90000 progress/tokens=3000 mismatch_kl/all/mean=0.001
    time/wait_for_batch=10.0 time/step=40.0
    -> zero_std_ratio=0.625 wait_seconds=10 step_seconds=40 trainer_idle_ratio=0.25
    reward=0.5 reward_max=2 reward_min=-1 response_length=300 response_length_max=900 prompt_length=100
    truncated_ratio=0.1 turns=2 rollout_failure_ratio=0.031 stale_drop_ratio=0.2
    solved_group_ratio{none}=0.125 solved_group_ratio{all}=0.5 reward_component{math/env/a}=0.5
    validation_score=0.25 validation_component{aime/a}=0.25 staleness=1.5 staleness_max=3
    stale_samples_dropped=4 engine_masked_ratio=0.02 moe_load_violation=0.5 tokens_seen=90000 step_tokens=3000
    kl_engine=0.001
prime_rl: trainer_mfu_percent=35.0 trainer_throughput_tokens_per_sec=900 trainer_peak_memory_gib=4
    trainer_mismatch_kl=0.001
    -> mfu_ratio=0.35 tokens_per_second=900 gpu_memory_reserved_bytes=4GiB kl_engine=0.001
slime: rollout/raw_reward=0.5 rollout/truncated_ratio=0.25 rollout/dynamic_filter/drop_zero_std_0.0=20
    rollout/dynamic_filter/drop_zero_std_1.0=9 rollout/spec_accept_rate=0.75 rollout/repetition_frac=0.5
    train/tis_clipfrac=0.01 train/mis_k3_kl=0.002 train/train_rollout_logprob_abs_diff=0.01
    eval/aime=0.4 eval/aime/avg_cached_tokens_per_sample=900 eval/aime/prefix_cache_hit_rate=0.9
    eval/aime/spec_accept_rate=0.7 eval/aime/error_cat/correct=3 eval/aime/zero_std/count_0.0=12
    -> reward=0.5 truncated_ratio=0.25 groups_filtered=29 spec_accept_ratio=0.75 engine_masked_ratio=0.01
    kl_engine=0.002 engine_logprob_diff=0.01 validation_score=0.4 validation_component{aime}=0.4
nemo_rl: train/reward=0.5 train/gen_kl_error=0.002 train/policy_kl_error=9 train/is_oob_ratio=0.01
    train/baseline_reward/pct_0=30.0 train/baseline_reward/pct_1=20.0 train/dropped_prompt_groups=2
    train/dynamic_sampling_num_gen_batches=2 train/trajectory_duration_s=6.0
    train/evicted_stale_prompt_groups=3 train/aborted_stale_inflight_groups=1 rollout/infra_drops_total=9
    -> reward=0.5 kl_engine=0.002 engine_masked_ratio=0.01 zero_std_ratio=0.5 solved_group_ratio{none}=0.3
    solved_group_ratio{all}=0.2 rollouts_failed=2 generation_rounds=2 sample_generation_seconds=6
    stale_samples_dropped=4
roll: critic/score/mean=0.5 actor_train/grad_norm=0.5 scheduler/off_policy_ratio=1.5
    scheduler/query_filter_count=32 scheduler/query_use_count=128 scheduler/group_filter_count=3
    group/all_incorrect_groups_ratio=0.125 group/all_correct_groups_ratio=0.5
    actor/train_infer_ratio_token_mean=1.1 actor/train_infer_diff_token_mean=-0.01
    actor/train_infer_final_mask_mean=0.75 actor/final_mask_ratio=0.9 env/maze/env_timeout=0.024
    env/maze/num_actions=4 env/webshop/num_actions=6 env/maze/success=1 scheduler/math/time/generate/mean=5.0
    scheduler/code/time/generate/mean=7.0 system/actor_infer/tps_gpu=500 time/get_batch_cost_train=9
    -> reward=0.5 grad_norm=0.5 staleness=1.5 filtered_group_ratio=0.25 groups_filtered=3 zero_std_ratio=0.625
    solved_group_ratio{none}=0.125 solved_group_ratio{all}=0.5 engine_importance_weight=1.1
    engine_masked_ratio=0.25 rollout_failure_ratio=0.024 turns=5 sample_generation_seconds=6
    rollout_tokens_per_second_per_gpu=500
open_instruct: scores=3.5 objective/kl2_avg=0.1 loss/kl_avg=9 val/stop_rate=0.75 time/total=40.0
    time/training=20.0 time/saving=3.0 time/weight_sync=1.0 time/trainer_waiting_for_data=10.0
    num_steps_off_policy=1.5 stale_results_dropped=4 tools/aggregate/failure_rate=0.33
    tools/aggregate/avg_calls_per_rollout=2.0 tools/aggregate/avg_runtime=0.5 val/rho_drop_frac=0.02
    val/rho_weight=1.1 debug/vllm_vs_local_logprob_diff_mean=0.01 debug/vllm_local_reverse_kl=0.002
    eval/pass_at_8=0.5 real_batch_size_ratio=0.9
    -> reward=3.5 kl=0.1 truncated_ratio=0.25 step_seconds=40 update_actor_seconds=20
    save_checkpoint_seconds=3 weight_sync_seconds=1 wait_seconds=10 trainer_idle_ratio=0.25 staleness=1.5
    stale_samples_dropped=4 tool_failure_ratio=0.33 tool_calls=2 tool_call_seconds=0.5
    engine_masked_ratio=0.02 engine_importance_weight=1.1 engine_logprob_diff=0.01 kl_engine=0.002
    validation_component{pass_at_8}=0.5
openrlhf: rollout/reward_mean=0.5 policy_loss=0.1 actor_lr=0.5 is_filter_ratio=0.02
    eval_aime_truncated_rate=0.9 rollout/truncated_rate=0.25 response_clip_ratio=0.9
    dynamic_filtering_pass_rate=400
    -> reward=0.5 policy_loss=0.1 learning_rate=0.5 engine_masked_ratio=0.02 truncated_ratio=0.25
areal: ppo_actor/task_reward/avg=0.5 ppo_actor/update/rs_filtered_fraction=0.02 rollout/accepted=1.0
    rollout/rejected=1.0
    -> reward=0.5 engine_masked_ratio=0.02
tunix: actor/train/grad_norm=0.5 -> grad_norm=0.5
tunix: rewards/train/mean=0.25 rewards/train/sum=0.75 rewards/train/max=9
    rewards/train/format=0.5 actor/train/loss=0.1 actor/train/perplexity=9
    actor/train/kl=0.03 actor/train/entropy=0.4 actor/train/learning_rate=0.000001
    generation/train/completions/mean_length=300 generation/train/completions/clip_ratio=0.25
    sampler_trainer/train/logp_diff_mean=0.01 sampler_trainer/train/prob_diff_mean=0.005
    sampler_trainer/train/probs_pearson_corr=0.99 sampler_is/train/weight_mean=1.1
    sampler_is/train/frac_clipped_at_threshold=0.02 perf/train/global_step_time=40.0
    -> reward=0.75 reward_component{format}=0.5 loss=0.1 policy_loss=0.1 kl=0.03 entropy=0.4
    learning_rate=0.000001 response_length=300 truncated_ratio=0.25 engine_logprob_diff=0.01
    engine_prob_diff=0.005 engine_prob_correlation=0.99 engine_importance_weight=1.1
    engine_masked_ratio=0.02 step_seconds=40
art: train/reward=0.5 train/reward_std_dev=0.1 train/exception_rate=0.25 val/reward=0.75 loss/train=0.1
    loss/entropy=0.4 loss/kl_policy_ref=0.03 loss/kl_div=9 loss/grad_norm=0.5 loss/learning_rate=0.000001
    loss/importance_ratio_mean=1.1 loss/clipped_token_fraction=0.05 time/step_wall_s=40.0
    time/step_trainer_idle_s=10.0 queue/actual_stale_fraction=0.2 discarded/rate/stale_groups=0.9
    discarded/step/zero_variance_groups=2 data/step_num_groups_trainable=6 objective/score=900
    offpolicy/token_weighted_policy_age_steps=1.5 throughput/accepted_train_tok_per_s=900
    -> reward=0.5 reward_std=0.1 rollout_failure_ratio=0.25 validation_score=0.75 policy_loss=0.1 entropy=0.4
    kl=0.03 grad_norm=0.5 learning_rate=0.000001 importance_weight=1.1 policy_clip_ratio=0.05 step_seconds=40
    wait_seconds=10 trainer_idle_ratio=0.25 stale_drop_ratio=0.2 filtered_group_ratio=0.25 staleness=1.5
    tokens_per_second=900
generic: env/all/reward/total=0.5 env/all/by_group/frac_all_bad=0.125 env/all/by_group/frac_all_good=0.5
    optim/kl_sample_train_v2=0.002 kl_policy_base=0.03 time/total=40.0
    -> reward=0.5 zero_std_ratio=0.625 solved_group_ratio{none}=0.125 solved_group_ratio{all}=0.5
    kl_engine=0.002 kl=0.03 step_seconds=40
"""
"""Records of trainers of late 2026, as `MEANT`; Agent Lightning logs verl's keys, ms-swift TRL's."""


@pytest.mark.parametrize("row", rows(LOGGED))
def test_a_record_tells_its_trainer_and_all_that_it_measures(row: str) -> None:
    framework, logged, meant = re.split(r": |->", row)
    reading, values = signals.Reading(""), {key: float(value) for key, value in PAIR.findall(logged)}
    found = reading.signals(values)
    found |= {f"{signal}{{{part}}}": value for (signal, part), value in reading.parts(values).items()}

    assert reading.framework == framework
    assert found == pytest.approx(expected(meant))


@pytest.mark.parametrize(
    ("signal", "key"),
    [
        ("stale_samples_dropped", "fully_async/count/dropped_stale_samples"),
        ("rollouts_failed", "rollout_errors/total"),
    ],
)
def test_a_count_since_the_start_is_its_increase_of_the_step(signal: str, key: str) -> None:
    """That of the first record is of unknown steps, as is one that began again."""
    reading, steps = signals.Reading("verl" if "async" in key else "generic"), []
    for total in (100.0, 100.0, 104.0, 114.0, 3.0, 5.0):
        values = {key: total}
        steps.append(reading.signals(values).get(signal))
        assert reading.sources(values)[signal] == (key,)  # who asks does not change what is next

    assert steps == [None, 0.0, 4.0, 10.0, None, 2.0]


def test_a_count_that_begins_with_the_first_failure_is_its_increase_from_0() -> None:
    reading, failed = signals.Reading("generic"), []
    for total in ({}, {}, {"rollout_errors/total": 3.0}, {"rollout_errors/total": 5.0}):
        failed.append(reading.signals({"env/all/reward/total": 0.5, **total}).get("rollouts_failed"))

    assert failed == [None, None, 3.0, 2.0]


@pytest.mark.parametrize(
    ("framework", "signal", "key", "beside"),
    [
        ("verl", "groups_filtered", "training/filter_groups/evicted_samples", "critic/score/mean"),
        ("verl", "rollouts_failed", "training/rollout_failure/evicted_samples", "training/global_step"),
        ("verl", "stale_samples_dropped", "training/off_policy/evicted_samples", "critic/score/mean"),
        ("trl", "stale_samples_dropped", "sample/dropped_stale_total", "sample/staleness_mean"),
        ("slime", "groups_filtered", "rollout/dynamic_filter/drop_zero_std_0.0", "rollout/raw_reward"),
    ],
)
def test_a_count_that_is_left_out_at_0_is_0_once_it_was_logged(
    framework: str, signal: str, key: str, beside: str
) -> None:
    reading = signals.Reading(framework)
    records: list[dict[str, float]] = [{beside: 0.5}, {beside: 0.5, key: 3.0}, {beside: 0.5}, {"eval/a": 0.5}]

    assert [reading.signals(values).get(signal) for values in records] == [None, 3.0, 0.0, None]
    assert signal not in reading.sources(records[2])


def test_a_part_of_the_reward_is_the_true_one_once_its_user_says_so() -> None:
    values = {"reward": 0.9, "rewards/format/mean": 0.8, "rewards/accuracy/mean": 0.1}
    named = signals.Reading("trl", keys_of({"true_reward": ["rewards/accuracy/mean"]}))

    assert "true_reward" not in signals.Reading("trl").signals(values)
    assert named.signals(values) == {"reward": 0.9, "true_reward": 0.1}

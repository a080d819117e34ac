"""Which key carries which signal, and the keys that mean something else than they say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs import signals
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.reading import table
from exporter.runs.signals.record import Record, ResponseLimit
from exporter.runs.signals.tables import frameworks
from exporter.runs.signals.truncation import Truncation
from exporter.runs.sources.line_consoles import VerlConsole

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
ROWS = [row for row in re.sub(r"\n    | *#.*", " ", MEANT).split("\n") if row.strip()]
LITERALS = {"None": None, "True": True}
PAIR = re.compile(r"(\S+)=(\S+)")


@pytest.mark.parametrize("row", ROWS)
def test_a_key_is_the_signal_it_means_in_its_unit(row: str) -> None:
    framework, logged, meant = re.split(r": |->", row)
    signals = {
        name: float(value.removesuffix("GiB")) * (GIB if value.endswith("GiB") else 1)
        for name, value in PAIR.findall(meant)
    }
    found = read(framework, {key: LITERALS.get(value, value) for key, value in PAIR.findall(logged)})

    assert found == pytest.approx(signals, nan_ok=True)


def test_a_part_of_the_reward_is_the_true_one_once_its_user_says_so() -> None:
    values = {"reward": 0.9, "rewards/format/mean": 0.8, "rewards/accuracy/mean": 0.1}
    named = signals.Reading("trl", keys_of({"true_reward": ["rewards/accuracy/mean"]}))

    assert "true_reward" not in signals.Reading("trl").signals(values)
    assert named.signals(values) == {"reward": 0.9, "true_reward": 0.1}

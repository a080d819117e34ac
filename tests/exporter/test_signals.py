"""Which key carries which signal, and the keys that mean something else than they say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from exporter.runs import signals
from exporter.runs.contract import STATISTICS
from exporter.runs.record import Record, ResponseLimit
from exporter.runs.run import Clock, Run
from exporter.runs.sources.verl_console import VerlConsole
from exporter.runs.sources.verl_jsonl import VerlJsonl

VERL = signals.table("verl")
SCOPED = signals.table("scoped")
GIB = 1024**3


def verl(**values: Any) -> dict[str, float]:
    return signals.extract({key.replace("__", "/"): value for key, value in values.items()}, VERL)


# the table


def test_every_signal_has_one_name_and_one_row() -> None:
    assert len(set(signals.NAMES)) == len(signals.NAMES)


def test_every_signal_with_statistics_is_in_the_table() -> None:
    assert {statistic.signal for statistic in STATISTICS} <= set(signals.NAMES)


@pytest.mark.parametrize("table", [VERL, SCOPED], ids=["verl", "scoped"])
def test_no_key_carries_two_signals(table: signals.Table) -> None:
    names = [key.name for _, keys in table for key in keys]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("key", "signal"), [(key.name, signal) for signal, keys in SCOPED for key in keys])
def test_scoped_keys_carry_their_signal(key: str, signal: str) -> None:
    assert signals.extract({key: 0.5}, SCOPED) == {signal: 0.5}


def test_a_signal_that_is_not_logged_is_absent_and_never_zero() -> None:
    assert verl(critic__score__mean=0.5) == {"reward": 0.5}


# traps of verl's names


def test_kl_loss_zero_gives_way_to_the_penalty_that_is_in_use() -> None:
    assert verl(actor__kl_loss=0.0, actor__reward_kl_penalty=0.25) == {"kl": 0.25}
    assert verl(actor__kl_loss="0.000", actor__reward_kl_penalty="0.25") == {"kl": 0.25}


def test_kl_loss_in_use_wins_over_the_penalty() -> None:
    assert verl(actor__kl_loss=0.1, actor__reward_kl_penalty=0.25) == {"kl": 0.1}


def test_kl_loss_that_is_nan_does_not_hide_behind_the_penalty() -> None:
    assert math.isnan(verl(actor__kl_loss=None, actor__reward_kl_penalty=0.25)["kl"])


def test_kl_of_old_versions_is_read() -> None:
    assert verl(critic__kl=0.03) == {"kl": 0.03}


def test_kl_between_updates_is_another_signal() -> None:
    assert verl(actor__ppo_kl=0.1, actor__kl_loss=0.2) == {"policy_kl": 0.1, "kl": 0.2}


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


@pytest.mark.parametrize("prefix", ["", "actor/"])
def test_memory_is_in_gib_under_its_old_and_its_new_name(prefix: str) -> None:
    written = {
        f"{prefix}perf/max_memory_allocated_gb": 2,
        f"{prefix}perf/max_memory_reserved_gb": "3.0",
        f"{prefix}perf/cpu_memory_used_gb": "np.float64(4.5)",
    }

    assert signals.extract(written, VERL) == {
        "gpu_memory_allocated_bytes": 2 * GIB,
        "gpu_memory_reserved_bytes": 3 * GIB,
        "host_memory_used_bytes": 4.5 * GIB,
    }


def test_memory_of_the_actor_wins_over_the_memory_of_nobody_in_particular() -> None:
    found = signals.extract({"actor/perf/cpu_memory_used_gb": 2, "perf/cpu_memory_used_gb": 9}, VERL)

    assert found == {"host_memory_used_bytes": 2 * GIB}


def test_memory_of_the_critic_is_not_the_actors() -> None:
    assert signals.extract({"critic/perf/max_memory_allocated_gb": 9}, VERL) == {}


@pytest.mark.parametrize("key", ["perf/time_per_step", "timing_s/step", "timing/step"])
def test_step_time_is_in_seconds_under_all_its_names(key: str) -> None:
    assert signals.extract({key: 33.4}, VERL)["step_seconds"] == 33.4


@pytest.mark.parametrize("section", ["timing_s", "timing"])
def test_phases_are_in_seconds_under_their_old_and_new_names(section: str) -> None:
    found = signals.extract({f"{section}/gen": 20.5, f"{section}/update_actor": 10.25}, VERL)

    assert found == {"rollout_seconds": 20.5, "update_actor_seconds": 10.25}


def test_throughput_is_per_gpu_and_tokens_over_time_is_over_all() -> None:
    found = verl(perf__throughput=100.0, perf__total_num_tokens=8000, perf__time_per_step=10.0)

    assert found["tokens_per_second_per_gpu"] == 100.0
    assert found["tokens_per_second"] == 800.0


@pytest.mark.parametrize("seconds", [0.0, None])
def test_tokens_per_second_needs_a_time(seconds: float | None) -> None:
    written = {"perf/total_num_tokens": 8000} | ({} if seconds is None else {"perf/time_per_step": seconds})

    assert "tokens_per_second" not in signals.extract(written, VERL)


def test_mfu_of_inference_is_not_the_update_s() -> None:
    assert signals.extract({"perf/mfu/actor_infer": 0, "perf/mfu/actor": 0.4}, VERL) == {"mfu_ratio": 0.4}


def test_counts_below_timing_are_no_times() -> None:
    found = verl(
        timing_s__agent_loop__num_preempted__mean=-1, timing_s__agent_loop__slowest__prompt_length=500
    )

    assert found == {}


def test_text_and_booleans_are_no_values() -> None:
    assert verl(critic__score__mean="n/a", actor__entropy=True) == {}


def test_a_key_whose_value_is_no_number_gives_way_to_the_next() -> None:
    assert verl(critic__score__mean="n/a", critic__rewards__mean=0.4) == {"reward": 0.4}


def test_not_finite_values_are_values() -> None:
    found = verl(critic__score__mean="nan", actor__grad_norm="inf", actor__pg_loss=None)

    assert math.isnan(found["reward"])
    assert found["grad_norm"] == math.inf
    assert math.isnan(found["policy_loss"])


# truncation in verl's v1 trainer


def truncated(record: dict[str, float], limit: int | None) -> float | None:
    run = Run(VerlJsonl(), 15.0)
    clock = Clock(1e9, 100.0, live=True)
    if limit is not None:
        run.take(ResponseLimit(limit), clock)
    run.take(Record(1, record), clock)
    return run.latest.get("truncated_ratio")


V0 = {"response_length/clip_ratio": 0.25, "response_length/max": 512.0}


@pytest.mark.parametrize("key", ["training/num_turns/mean", "training/off_policy/trajectory_staleness/mean"])
def test_v1_clip_ratio_is_the_truncated_share_only_at_the_known_limit(key: str) -> None:
    v1 = {**V0, key: 2.0}

    assert truncated(v1, limit=512) == 0.25
    assert truncated(v1, limit=1024) == 0.0
    assert truncated(v1, limit=None) is None


def test_v0_clip_ratio_is_the_truncated_share() -> None:
    assert truncated(V0, limit=None) == 0.25
    assert truncated(V0, limit=1024) == 0.25


def test_v1_without_the_longest_response_is_believed_at_a_known_limit() -> None:
    assert truncated({"response_length/clip_ratio": 0.25, "training/num_turns/mean": 2.0}, limit=512) == 0.25


def test_the_response_limit_is_read_from_the_printed_configuration() -> None:
    run = Run(VerlConsole(), 15.0)
    clock = Clock(1e9, 100.0, live=True)
    lines = (
        b"  'max_response_length': 1024,",
        b"step:1 - response_length/clip_ratio:0.125 - response_length/max:700 - training/num_turns/mean:2.0",
    )
    for line in lines:
        for event in run.source.read(line):
            run.take(event, clock)

    assert run.latest["truncated_ratio"] == 0.0

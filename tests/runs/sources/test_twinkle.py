"""Twinkle's events, as its recorder writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Event, Record
from exporter.runs.sources import recognise_first
from exporter.runs.sources.json_logs import MOST_PARTITIONS, TwinkleEvents

CONTEXT = "tenant/gsm8k/lora"


def event(name: str, partition: int | None = 0, context: str | None = CONTEXT, **metrics: Any) -> bytes:
    """A line of ``JSONLMetricsRecorder.record`` (ModelScope's Twinkle, 2026-08)."""
    line = {
        "ts": 1785385895.5,
        "elapsed_s": 37.5,
        "run_id": "async_multi_lora_grpo",
        "mode": "ray",
        "event": name,
        "phase": name.split("_", 1)[0],
        "context_key": context,
        "partition_id": None if partition is None else f"{context}/train_{partition}",
        "policy_version": None,
        "metrics": metrics,
    }
    return json.dumps(line).encode() + b"\n"


def group(partition: int, length: float, truncated: float, *, context: str = CONTEXT) -> list[bytes]:
    lengths = {"completion_length_mean": length, "completion_length_max": 2 * length}
    rollout = {**lengths, "completion_truncated_ratio": truncated, "rollout_latency_s": length / 10}
    advantage = {"zero_advantage_group_ratio": truncated, "group_count": 1}
    return [
        event("rollout_done", partition, context, group_id="g", sample_count=4, **rollout),
        event("advantage_done", partition, context, sample_count=4, **advantage),
    ]


def trained(partition: int, step: int, reward: float, context: str = CONTEXT) -> bytes:
    metrics = {"loss": "0.0063", "grad_norm": "0.017651", "speed": "0.00 iters/s", "sample_count": 64}
    return event("train_step_done", partition, context, **metrics, reward=reward, optimizer_step=step)


def done(partition: int, context: str = CONTEXT) -> bytes:
    return event("partition_done", partition, context, policy_publish_latency_s=0.5)


def read(*lines: bytes) -> list[Event]:
    source = TwinkleEvents()
    return [found for line in lines for found in source.parse(line)] + list(source.flush())


def signals(*lines: bytes) -> dict[int, dict[str, float]]:
    """Step -> signals, as a run puts the records of a step together."""
    found: dict[int, dict[str, float]] = {}
    for record in read(*lines):
        if isinstance(record, Record):
            found.setdefault(record.step, {}).update(Reading("twinkle").signals(record.values))
    return found


def test_only_the_training_on_a_partition_is_a_step() -> None:
    lines = [
        line
        for step in range(3)
        for line in (
            event("rollout_submitted", step, prompt_count=16),
            *group(step, 100.0, 0.0),
            trained(step, step + 1, 0.25),
            event("policy_published", step, policy_publish_latency_s=0.5),
            done(step),
            event("adapter_pruned", None, None, adapter_prune_latency_s=0.1),
        )
    ]

    assert list(signals(*lines)) == [1, 2, 3]


def test_a_step_has_what_was_reported_of_the_groups_of_its_partition() -> None:
    other = group(1, 900.0, 1.0)
    lines = [*group(0, 100.0, 0.0), *other, *group(0, 200.0, 0.5), trained(0, 1, 0.25), done(0)]

    assert signals(*lines) == {
        1: {
            "reward": 0.25,
            "policy_loss": 0.0063,
            "loss": 0.0063,
            "grad_norm": 0.017651,
            "response_length": 150.0,
            "response_length_max": 400.0,
            "truncated_ratio": 0.25,
            "zero_std_ratio": 0.25,
            "rollout_seconds": 20.0,
            "weight_sync_seconds": 0.5,
        }
    }


def test_groups_that_are_written_after_the_step_belong_to_it_until_the_partition_is_done() -> None:
    early = [*group(0, 100.0, 0.0), *group(0, 200.0, 0.5), trained(0, 1, 0.25), done(0)]
    late = [*group(0, 100.0, 0.0), trained(0, 1, 0.25), *group(0, 200.0, 0.5), done(0)]

    assert signals(*late) == signals(*early)


def test_each_context_is_a_run_and_ends_with_the_trainer() -> None:
    found = read(
        trained(0, 1, 0.25, "a"),
        trained(0, 1, 0.5, "b"),
        trained(1, 2, 0.75, "a"),
        event("run_completed", None, None, trained_partitions=3),
    )

    assert [(each.run, each.step) for each in found if isinstance(each, Record)] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]
    assert found[3:] == [Ended("finished", run="a"), Ended("finished", run="b")]


def test_a_failure_is_reported() -> None:
    assert read(trained(0, 1, 0.5), event("run_failed", None, None, error="ValueError"))[1:] == [
        Ended("failed", run=CONTEXT)
    ]


def test_the_format_is_recognised_before_a_flat_one_that_its_lines_look_like() -> None:
    rewarded = event("rollout_done", 0, reward=0.5, completion_length_mean=100.0, sample_count=4)
    lines = [event("rollout_submitted"), rewarded, *group(0, 100.0, 0.0) * 40, trained(0, 1, 0.25), done(0)]

    assert isinstance(recognise_first(lines), TwinkleEvents)
    assert isinstance(recognise_first([rewarded]), TwinkleEvents)


def test_partitions_in_the_making_are_bounded() -> None:
    lines = [line for partition in range(MOST_PARTITIONS + 1) for line in group(partition, 100.0, 0.0)]
    found = signals(*lines, trained(0, 1, 0.5), done(0), trained(1, 2, 0.5), done(1))

    assert "response_length" not in found[1]
    assert found[2]["response_length"] == 100.0


@pytest.mark.parametrize("line", [b"[]", b"text", b'{"event":"train_step_done"}', trained(0, 1, 0.5)[:-9]])
def test_what_is_not_an_event_is_a_value_error(line: bytes) -> None:
    assert not TwinkleEvents.recognises(line)
    with pytest.raises(ValueError, match="no event"):
        read(line)


LENGTHS = st.lists(st.tuples(st.integers(1, 16), st.floats(0, 1e4)), min_size=1, max_size=8)


@given(LENGTHS)
def test_the_mean_over_groups_is_the_mean_over_their_samples(groups: list[tuple[int, float]]) -> None:
    reported = [event("rollout_done", sample_count=n, completion_length_mean=length) for n, length in groups]
    found = signals(*reported, trained(0, 1, 0.5), done(0))
    samples = [length for count, length in groups for _ in range(count)]

    assert found[1]["response_length"] == pytest.approx(sum(samples) / len(samples))

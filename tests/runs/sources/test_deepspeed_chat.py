"""DeepSpeed-Chat's console, in the words of its newest source and in those of before 2023-09."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals import Reading
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number
from exporter.runs.sources import recognise_first
from exporter.runs.sources.block_consoles import DeepSpeedChat

RULE = "-" * 85


def new(epoch: int, step: int, actor: float, critic: float, reward: float) -> list[str]:
    """A step as ``step3_rlhf_finetuning/main.py`` and ``dschat/utils/perf.py`` print it (6eb5247)."""
    return [
        (
            f"Epoch: {epoch} | Step: {step} | PPO Epoch: 1 | Actor Loss: {actor} | Critic Loss: {critic}"
            " | Unsupervised Loss: 0.0"
        ),
        (
            "End-to-End => Latency: 4.50s, TFLOPs: 11.02, Samples/sec: 7.11, Time/seq 0.14s, Batch Size: 32,"
            " Total Seq. Length: 512"
        ),
        (
            "Generation => Latency: 2.75s, Per-token Latency 10.74 ms, TFLOPs: 2.36, BW: 245.00 GB/sec,"
            " Answer Seq. Length: 256"
        ),
        "Training   => Latency: 1.75s, TFLOPs: 24.61",
        "Actor Model Parameters => 1.316 B, Critic Model Parameters => 0.331 B",
        f"Average reward score: {reward} | EMA reward score: {reward / 2}",
        RULE,
    ]


def old(epoch: int, step: int, actor: float, critic: float, reward: float) -> list[str]:
    """A step as it was printed before."""
    return [
        f"epoch: {epoch}|step: {step}|ppo_ep: 1|act_loss: {actor}|cri_loss: {critic}|unsuper_loss: 0.0",
        f"average reward score: {reward}",
        RULE,
        (
            "|E2E latency=4.50s |Gather latency=0.00s (0.00%) |Generate time=2.75s (61.11%)"
            " |Training time=1.75s (38.89%) |Others=0.00 (0.00%)|CurSamplesPerSec=7.11 |AvgSamplesPerSec=7.10"
        ),
    ]


Printed = Callable[[int, int, float, float, float], list[str]]
WORDS = pytest.mark.parametrize("printed", [new, old])


def begin(epoch: int, epochs: int, batches: int) -> str:
    return f"Beginning of Epoch {epoch + 1}/{epochs}, Total Generation Batches {batches}"


def read(lines: Sequence[str], source: DeepSpeedChat | None = None) -> list[Event]:
    source = source or DeepSpeedChat()
    return [event for line in lines for event in source.parse(line.encode())] + list(source.flush())


def records(lines: Sequence[str]) -> list[Record]:
    return [event for event in read(lines) if isinstance(event, Record)]


@WORDS
def test_what_is_printed_of_a_step_is_one_record(printed: Printed) -> None:
    (record,) = records(printed(0, 12, -0.25, 0.125, 0.5))

    assert record.step == 12
    assert Reading("deepspeed_chat").signals(record.values) == {
        "reward": 0.5,
        "policy_loss": -0.25,
        "value_loss": 0.125,
        "step_seconds": 4.5,
        "rollout_seconds": 2.75,
    }


@WORDS
def test_steps_count_on_over_the_epochs_up_to_the_total_that_the_log_reports(printed: Printed) -> None:
    lines: list[str] = []
    for epoch in range(2):
        lines.append(begin(epoch, 2, 3))
        lines += [line for step in range(3) for line in printed(epoch, step, 0.1, 0.2, 0.3)]
    found = read([*lines, "saving model ..."])

    assert [event.step for event in found if isinstance(event, Record)] == list(range(6))
    assert TotalSteps(6) in found
    assert found[-1] == Ended("finished")


@WORDS
def test_without_the_line_of_the_epoch_the_next_epoch_goes_on_behind_the_last_step(printed: Printed) -> None:
    lines = [line for epoch in range(2) for step in range(3) for line in printed(epoch, step, 0.1, 0.2, 0.3)]

    assert [record.step for record in records(lines)] == list(range(6))


@WORDS
def test_a_log_that_grows_line_by_line_reports_each_number_once(printed: Printed) -> None:
    source = DeepSpeedChat()
    found = [event for line in printed(0, 3, 0.1, 0.2, 0.3) for event in read([line], source)]

    assert all(isinstance(event, Record) and event.step == 3 for event in found)
    keys = [key for event in found if isinstance(event, Record) for key in event.values]
    assert sorted(keys) == sorted(set(keys))
    assert {"reward", "actor_loss", "critic_loss"} < set(keys)


@WORDS
def test_the_format_is_recognised_by_its_step_whatever_stands_before(printed: Printed) -> None:
    head = [
        "[2023-04-18 08:48:01,735] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[5e-07]"
    ]
    source = recognise_first([line.encode() for line in [*head, *printed(0, 0, 0.1, 0.2, 0.3)]])

    assert isinstance(source, DeepSpeedChat)


@pytest.mark.parametrize(
    "line",
    [
        "Average reward score: 0.5 | EMA reward score: 0.25",
        "***** Running training *****",
        "Epoch: 1 | Step: 2 | Loss: 0.5",
        "epoch: 0|step: 0|ppo_ep: 1|act_loss: tensor",
    ],
)
def test_other_lines_are_not_taken_for_a_step(line: str) -> None:
    assert not DeepSpeedChat.recognises(line.encode())


def test_the_launcher_reports_that_the_trainer_failed() -> None:
    line = "[2026-04-18 09:18:15,594] [ERROR] ['main.py'] exits with return code = -9"

    assert read([line]) == [Ended("failed")]


def test_a_cut_step_is_not_a_record_with_a_cut_number() -> None:
    line = new(0, 12, 0.123456, 0.654321, 0.5)[0]

    for cut in range(len(line)):
        for record in records([line[:cut]]):
            assert record.step == 12
            assert set(record.values) == {"actor_loss", "critic_loss"}
            assert record.values["actor_loss"] == "0.123456"


FLOATS = st.floats(width=32, allow_nan=True)


@WORDS
@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS), min_size=1, max_size=5))
def test_numbers_are_read_as_they_were_printed(
    printed: Printed, steps: list[tuple[float, float, float]]
) -> None:
    found = records([line for step, each in enumerate(steps) for line in printed(0, step, *each)])

    assert [record.step for record in found] == list(range(len(steps)))
    for record, numbers in zip(found, steps, strict=True):
        for key, expected in zip(("actor_loss", "critic_loss", "reward"), numbers, strict=True):
            value = number(record.values[key])
            assert value is not None
            assert value == expected or (math.isnan(value) and math.isnan(expected))

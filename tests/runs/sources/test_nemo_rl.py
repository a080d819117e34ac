"""NeMo-RL's console: headers and bullets, several lines a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number
from exporter.runs.sources.block_consoles import NemoRl
from tests.runs.lines import bare

RESULTS = ["📊 Training Results:", "  • Loss: -0.0021", "  • Avg Reward: {}"]


def read(*lines: str | bytes) -> list[Event]:
    source = NemoRl()
    return [event for line in bare(*lines) for event in source.parse(line)] + list(source.flush())


def records(*lines: str) -> list[tuple[int, dict[str, float | None]]]:
    found = [event for event in read(*lines) if isinstance(event, Record)]
    return [(event.step, {key: number(raw) for key, raw in event.values.items()}) for event in found]


def header(step: int, steps: int) -> str:
    return f"========================= Step {step}/{steps} ========================="


def epoch(number_: int, epochs: int) -> str:
    return f"========================= Epoch {number_}/{epochs} ========================="


def results(reward: float) -> list[str]:
    return [line.format(reward) for line in RESULTS]


def rewards(*lines: str) -> list[tuple[int, float | None]]:
    return [(step, values["train/reward"]) for step, values in records(*lines)]


def test_bullets_get_the_keys_of_tensorboard() -> None:
    found = records(
        header(12, 500),
        "📊 Training Results:",
        "  • Loss: -0.0021",
        "  • Draft Loss: nan",
        "  • Generation KL Error: 0.0004",
        "  • Avg Reward: 0.5312",
        "  • Mean Generation Length: 312.5000",
        "",
        "⏱️  Timing:",
        "  • Total step time: 99.50s",
        "  • generation: 55.20s (55.5%)",
        "  • prepare_for_generation/total: 2.20s (2.2%)",
        "🔍 Performance Metrics:",
        "  • Mean Total Tokens per Sample: 204.01",
        "  • Throughputs (per GPU):",
        "    - E2E (Samples/sec/gpu): 3.59",
    )
    ((step, values),) = found

    assert step == 12
    assert str(values.pop("train/draft_loss")) == "nan"
    assert values == {
        "train/loss": -0.0021,
        "train/gen_kl_error": 0.0004,
        "train/reward": 0.5312,
        "train/mean_gen_tokens_per_sample": 312.5,
        "timing/train/total_step_time": 99.5,
        "timing/train/generation": 55.2,
        "timing/train/prepare_for_generation/total": 2.2,
    }


def test_with_dynamic_sampling_the_reward_is_that_of_all_samples() -> None:
    lines = ["📊 Training Results:", "  • Avg Filtered Reward: 0.5", "  • Avg Total Reward: 0.25"]
    ((_, values),) = records(header(1, 5), *lines)

    assert values == {"train/filtered_reward": 0.5, "train/reward": 0.25}


H, R, E = header, results, epoch


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # without headers steps are counted
        ([*R(0.1), *R(0.2), *R(0.3)], [(1, 0.1), (2, 0.2), (3, 0.3)]),
        # a header that goes from the last back to the first is the next epoch
        ([H(1, 2), *R(0.1), H(2, 2), *R(0.2), H(1, 2), *R(0.3)], [(1, 0.1), (2, 0.2), (3, 0.3)]),
        # any other that goes back is a resume, or a start from scratch
        ([H(3, 9), *R(0.1), H(4, 9), *R(0.2), H(3, 9), *R(0.3)], [(3, 0.1), (4, 0.2), (3, 0.3)]),
        ([H(1, 9), *R(0.1), H(2, 9), *R(0.2), H(1, 9), *R(0.3)], [(1, 0.1), (2, 0.2), (1, 0.3)]),
        # headers of epochs count where they are: a first step behind the last one is a restart
        ([E(2, 3), H(10, 10), *R(0.1), E(3, 3), H(1, 10), *R(0.2)], [(20, 0.1), (21, 0.2)]),
        ([E(3, 3), H(1, 10), *R(0.2), E(1, 3), H(1, 10), *R(0.3)], [(21, 0.2), (1, 0.3)]),
        ([H(1, 1), H(1, 1), *R(0.1)], [(1, 0.1)]),  # sampled again
        ([f"\x1b[36m(Trainer pid=4)\x1b[0m {line}" for line in (H(4, 9), *R(0.5))], [(4, 0.5)]),
    ],
)
def test_the_step_is_that_of_the_header_above(lines: list[str], expected: list[tuple[int, float]]) -> None:
    assert rewards(*lines) == expected


def test_the_total_is_known_of_one_epoch_only() -> None:
    """The step limit may end a run within any epoch but the only one."""
    assert read(epoch(1, 1), header(1, 500)) == [TotalSteps(500)]
    assert read(epoch(1, 3), header(1, 500)) == []
    assert read(header(1, 500)) == []


def test_validation_before_the_first_step_is_step_0() -> None:
    lines = [
        "📊 Validation Results:",
        "    • Accuracy: 0.2500",
        "    • Average response length: 312.5 tokens",
    ]
    found = records(*lines, "⏱️  Validation Timing:", "  • Total validation time: 12.30s", header(1, 9))

    assert found == [
        (
            0,
            {
                "validation/accuracy": 0.25,
                "validation/avg_length": 312.5,
                "timing/validation/total_validation_time": 12.3,
            },
        )
    ]


def test_what_is_known_comes_when_the_log_pauses_and_the_rest_later() -> None:
    source = NemoRl()
    first = [header(1, 5), *results(0.5)]
    events = [event for line in first for event in source.parse(line.encode())] + list(source.flush())
    later = [
        *source.parse("⏱️  Timing:".encode()),
        *source.parse("  • generation: 4.95s (13.9%)".encode()),
        *source.flush(),
        *source.flush(),
    ]

    assert events == [Record(1, {"train/loss": "-0.0021", "train/reward": "0.5"})]
    assert later == [Record(1, {"timing/train/generation": "4.95"})]


def test_the_newer_print_needs_a_step_near_it() -> None:
    printed = "step_metrics={'loss': 0.5, 'timing/train/generation': 4.9}"
    values = {"train/loss": 0.5, "timing/train/generation": 4.9}

    assert records(printed) == []
    assert records(f"Step 7: {printed}") == [(7, values)]
    assert records(header(3, 9), printed) == [(3, values)]


def test_the_step_limit_is_the_end() -> None:
    lines = [header(5, 5), *results(0.5), "Max number of steps has been reached, stopping training early"]
    *_, last = read(*lines)

    assert last == Ended("finished")


@pytest.mark.parametrize(
    "line", ["", "Training Results: see below", "my Training Results:", "=== Step 1/2 ===", "Results:"]
)
def test_other_texts_are_not_recognised(line: str) -> None:
    assert not NemoRl.recognises(line.encode())


@pytest.mark.parametrize("line", ["  • Loss: 0.5", "Shopping:", "  • milk: 2"])
def test_bullets_of_other_sections_are_no_metrics(line: str) -> None:
    assert read(header(1, 5), "🛒 Shopping:", line) == []
    assert read("⏱️  Timing:", header(1, 5), line) == []


@given(st.integers(min_value=0))
def test_a_line_cut_anywhere_costs_only_that_line(cut: int) -> None:
    line = "  • Avg Reward: 0.5312"
    lines = [header(1, 5), "📊 Training Results:", "  • Loss: -0.0021", line[: cut % len(line)]]
    ((_, values),) = records(*lines)

    assert values["train/loss"] == -0.0021

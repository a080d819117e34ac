"""OpenRLHF's log lines, of both trainers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Event, Record, number
from exporter.runs.sources.dict_consoles import OpenRlhf

VALUES = "{'policy_loss': -0.0021, 'reward': 0.53, 'kl': nan, 'timing/step_total': 99.5}"
EVALUATED = "{'eval_gsm8k_pass1': 0.5}"
LOGGER = "INFO 08-13 10:11:12 ppo_trainer.py:547] "


def read(*lines: str | bytes) -> list[Event]:
    source = OpenRlhf()
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return [event for line in encoded for event in source.parse(line)]


@pytest.mark.parametrize(
    "line",
    [
        f"{LOGGER}✨ Global step 12: {VALUES}",
        f"{LOGGER}Global step 12: {VALUES}",
        f"\x1b[36m(PPOTrainer pid=7)\x1b[0m {LOGGER}✨ Global step 12: {VALUES}",
        f"(PPOTrainerAsync pid=7, ip=10.0.0.7) {LOGGER}Global step 12: {VALUES}",
        f"Episode [1/20]:   3%|▎  | 12/435 [00:41<24:12,  3.43s/it]\r{LOGGER}✨ Global step 12: {VALUES}",
        f"Global step 12: {VALUES}",
    ],
)
def test_a_step_is_read_whatever_stands_around_it(line: str) -> None:
    (found,) = read(line)

    assert isinstance(found, Record)
    assert (found.step, found.stream, found.time) == (12, "", None)
    assert {key: number(value) for key, value in found.values.items() if key != "kl"} == {
        "policy_loss": -0.0021,
        "reward": 0.53,
        "timing/step_total": 99.5,
    }
    assert math.isnan(number(found.values["kl"]) or 0.0)
    assert OpenRlhf.recognises(line.encode())


@pytest.mark.parametrize(
    "line",
    [
        f"✨ Evaluation completed in 0:01:32, global_step 20, eval_metrics: {EVALUATED}",
        f"✨ Evaluation completed in 1 day, 0:01:32, global_step 20, eval_metrics: {EVALUATED}",
        f"Eval at step 20: {EVALUATED}",
    ],
)
def test_evaluations_are_a_stream_of_their_own(line: str) -> None:
    """The asynchronous trainer is steps ahead when one is logged: that is no resume."""
    assert read(LOGGER + line) == [Record(20, {"eval_gsm8k_pass1": "0.5"}, stream="eval")]
    assert OpenRlhf.recognises(line.encode())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Global step 12:",
        "Global step 12: done",
        "Global step twelve: {'reward': 1.0}",
        f"Global step {'9' * 20}: {{'reward': 1.0}}",
        "Global step 12: {'state': 'saved'}",
        "the Global step 12: {'reward': 1.0}",
        "Sample: [\"say 'Global step 3: {'reward': 9}'\"]",
        "{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}",
    ],
)
def test_other_lines_give_no_record(line: str) -> None:
    assert read(line) == []


@given(st.integers(min_value=0))
def test_a_line_cut_anywhere_invents_nothing(cut: int) -> None:
    line = f"{LOGGER}✨ Global step 12: {VALUES}"

    assert read(line[: cut % len(line)]) == []

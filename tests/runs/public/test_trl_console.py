"""Public consoles of Hugging Face trainers."""

from __future__ import annotations

import math
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.runs.signals.record import Ended, Record, TotalSteps, number
from exporter.runs.sources.trl_console import TrlConsole
from tests.runs.sources.test_trl_console import steps
from tests.runs.sources.test_trl_logs import naive, of_log, read_log

EVERY = {
    "finqa_grpo_2400steps_noisy.log": (2400, 1),
    "gsm8k_qwen9b_adq_seed42_dead_reward_zero.txt": (50, 1),
    "gsm8k_qwen9b_adq_seed44_200steps_improving.log": (200, 1),
    "gsm8k_qwen9b_rho0.70_seed43_kl_spike.log": (200, 1),
    "gsm8k_qwen9b_rho3.00_seed43_flat.log": (200, 1),
    "gsm8k_rho0.30_seed42_entropy_explodes_then_zero.log": (40, 5),
    "gsm8k_rho0.30_seed43_length_runaway_reward_collapse.log": (40, 5),
    "gsm8k_rho0.70_seed42_healthy.log": (40, 5),
    "gsm8k_rho1.00_seed42_entropy_explosion_reward_collapse.log": (40, 5),
    "gsm8k_rho1.50_seed42_length_runaway_reward_dips.log": (40, 5),
    "gsm8k_rho3.00_seed44_healthy.log": (40, 5),
    "gsm8k_vanilla_seed42_healthy.log": (40, 5),
    "gsm8k_vanilla_seed43_collapse_and_recovery.log": (40, 5),
    "hotpotqa_grpo_v1_kl_explosion.log": (93, 20),
    "hotpotqa_grpo_v2_healthy.log": (46, 20),
    "trl_grpo_lfgrpo_gradnorm_nan_intermittent.log": (29, 1),  # every 5, but the log does not tell
}
"""Records of each real log, and steps from one to the next, as the notes on those logs say."""


TWO_RUNS = "unsloth_grpo_gradnorm_nan_until_step20.log"


def test_the_real_logs_are_those_that_are_known(real_logs: Path) -> None:
    assert {path.name for path in (real_logs / "trl_console").iterdir()} == {*EVERY, TWO_RUNS}


@pytest.mark.parametrize("name", [*EVERY, TWO_RUNS])
def test_real_logs_hold_the_records_that_a_plain_search_finds(real_logs: Path, name: str) -> None:
    path = real_logs / "trl_console" / name
    found = [{key: number(raw) for key, raw in record.values.items()} for record in of_log(path)]

    assert repr(found) == repr(naive(path.read_text()))


@pytest.mark.parametrize(("name", "expected"), EVERY.items())
def test_real_logs_have_the_steps_that_were_logged(
    real_logs: Path, name: str, expected: tuple[int, int]
) -> None:
    count, every = expected
    found = [record.step for record in of_log(real_logs / "trl_console" / name)]

    assert found == list(range(every, count * every + 1, every))


def test_real_files_of_other_formats_are_not_recognised(real_logs: Path) -> None:
    others = [path for path in real_logs.rglob("*") if path.is_file() and path.parent.name != "trl_console"]
    assert len(others) > 40

    for path in others:
        assert not any(TrlConsole.recognises(line) for line in path.read_bytes().split(b"\n")), path


def test_two_runs_in_one_file_are_two_attempts(real_logs: Path) -> None:
    found = [record.step for record in of_log(real_logs / "trl_console" / TWO_RUNS)]

    assert found == [*range(1, 21), *range(1, 28)]


def test_real_logs_tell_their_total_and_their_end(real_logs: Path) -> None:
    said = {
        name: [event for event in read_log(real_logs / "trl_console" / name) if not isinstance(event, Record)]
        for name in (*EVERY, TWO_RUNS)
    }
    finished = Ended("finished")

    assert said.pop("hotpotqa_grpo_v2_healthy.log") == [TotalSteps(936), Ended("failed", certain=False)]
    assert said.pop("trl_grpo_lfgrpo_gradnorm_nan_intermittent.log") == []
    assert said.pop(TWO_RUNS) == [TotalSteps(20), finished, TotalSteps(50), finished]
    assert said.pop("hotpotqa_grpo_v1_kl_explosion.log") == [TotalSteps(1875), finished]
    for name, found in said.items():
        count, every = EVERY[name]
        assert found == [TotalSteps(count * every), finished], name


def test_one_nan_among_numbers_stays_one(real_logs: Path) -> None:
    """grad_norm is not a number on three records, kl on eleven: present and not finite there."""
    found = of_log(real_logs / "trl_console" / "trl_grpo_lfgrpo_gradnorm_nan_intermittent.log")
    nan = {
        key: [index for index, record in enumerate(found, 1) if math.isnan(number(record.values[key]) or 0.0)]
        for key in ("grad_norm", "kl", "reward")
    }

    assert nan["grad_norm"] == [3, 12, 19]
    assert (len(nan["kl"]), nan["reward"]) == (11, [])


def test_real_logs_cut_anywhere_have_rising_steps(real_logs: Path) -> None:
    content = (real_logs / "trl_console" / "gsm8k_rho0.70_seed42_healthy.log").read_text()
    for cut in range(0, len(content), 3989):
        found = steps(content[cut:])
        assert all(a < b for a, b in pairwise(found))
        assert len(found) <= 40


def test_a_real_log_as_one_line_is_read_in_time(real_logs: Path) -> None:
    content = (real_logs / "trl_console" / "finqa_grpo_2400steps_noisy.log").read_bytes()
    line = content.replace(b"\n", b"\r")
    begun = time.process_time()
    text = line.decode()
    for piece in text.split("\r"):
        re.search(r"\{'loss'[^{}]*\}", piece)
    plain, begun = time.process_time() - begun, time.process_time()
    found = [event for event in TrlConsole().parse(line) if isinstance(event, Record)]

    assert len(found) == 2400
    assert time.process_time() - begun < 100 * plain

"""Logs that TRL wrote for us."""

from __future__ import annotations

import ast
import math
import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number
from exporter.runs.sources.trl_console import TrlConsole
from tests.own_logs import TRL, VERL


def naive(content: str) -> list[dict[str, float]]:
    """The records of a log by a plain search, with Python's own reader."""
    found = re.findall(r"\{'loss'[^{}]*\}", content.replace("\n'", "'").replace("length\n", "length"))
    literal = [ast.literal_eval(re.sub(r": nan\b", ": 'nan'", text)) for text in found]
    return [{key: float(value) for key, value in record.items()} for record in literal]


def read_log(path: Path) -> list[Event]:
    return read_text(path.read_bytes())


def read_text(text: bytes) -> list[Event]:
    source = TrlConsole()
    return [event for line in text.split(b"\n") for event in source.parse(line)]


def of_log(path: Path) -> list[Record]:
    return [event for event in read_log(path) if isinstance(event, Record)]


def said(path: Path) -> list[Event]:
    """What a log says about the run."""
    return [event for event in read_log(path) if not isinstance(event, Record)]


STEPS = {
    "constant_reward": [*range(1, 121)],
    "every5": [*range(5, 201, 5)],
    "failed": [*range(1, 41)],
    "failed_before_step_1": [],
    "healthy": [*range(1, 61)],
    "healthy_buffered": [*range(1, 61)],
    "killed_buffered": [*range(1, 34)],
    "killed_file": [*range(1, 41)],
    "killed_tee": [*range(1, 41)],
    "nan": [*range(1, 41)],
    "noisy": [*range(1, 101)],
    "resumed": [*range(1, 48), *range(41, 81)],
    "resumed_after_end": [*range(1, 21), *range(21, 41)],
    "resumed_buffered": [*range(1, 41), *range(41, 81)],
    "sick": [*range(1, 65)],
    "two_runs": [*range(1, 21), *range(1, 31)],
    "wandb_console": [*range(1, 21)],
}
"""What each log of TRL has, as tests/logs/README.md says."""

FINISHED = Ended("finished")
FAILED = Ended("failed", certain=False)
SAID = {
    "failed": [TotalSteps(80), FAILED],
    "failed_before_step_1": [FAILED],
    "killed_buffered": [TotalSteps(160)],
    "killed_file": [TotalSteps(160)],
    "killed_tee": [TotalSteps(160)],
    "resumed_after_end": [TotalSteps(20), FINISHED, TotalSteps(40), FINISHED],
    "two_runs": [TotalSteps(20), FINISHED, TotalSteps(30), FINISHED],
}
"""What each log says of its total and end, where that is more or less than one end at the last step."""


@pytest.mark.parametrize("name", STEPS)
def test_a_log_holds_the_records_that_a_plain_search_finds_with_the_steps_that_were_logged(name: str) -> None:
    log = TRL / f"{name}.log"
    found = of_log(log)

    assert repr([{key: number(raw) for key, raw in record.values.items()} for record in found]) == repr(
        naive(log.read_text())
    )
    assert [record.step for record in found] == STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_a_log_says_how_many_steps_there_are_and_how_it_ended(name: str) -> None:
    assert said(TRL / f"{name}.log") == SAID.get(name, [TotalSteps((STEPS[name] or [0])[-1]), FINISHED])


def test_every_log_is_known() -> None:
    assert {log.stem for log in TRL.glob("*.log")} == set(STEPS)


@pytest.mark.parametrize("log", sorted(VERL.glob("*.log")), ids=lambda log: log.stem)
def test_logs_of_another_trainer_are_not_recognised(log: Path) -> None:
    assert not any(TrlConsole.recognises(line) for line in log.read_bytes().split(b"\n"))


def test_nan_among_numbers_is_there_and_not_finite() -> None:
    found = of_log(TRL / "nan.log")
    nan = [record.step for record in found if math.isnan(number(record.values["grad_norm"]) or 0.0)]

    assert nan == [12, 19, 20, 21]
    assert all(math.isfinite(number(record.values["reward"]) or 0.0) for record in found)


def test_a_log_cut_anywhere_has_rising_steps() -> None:
    content = (TRL / "every5.log").read_bytes()
    for cut in range(0, len(content), 1999):
        found = [event.step for event in read_text(content[cut:]) if isinstance(event, Record)]
        assert all(a < b for a, b in pairwise(found))
        assert len(found) <= len(STEPS["every5"])


def read_in_two_parts(text: bytes, cut: int) -> list[Event]:
    """As a log is read whose writer paused there for so long that its last line was released."""
    source, part = TrlConsole(), text[:cut]
    found = [event for line in part.split(b"\n") for event in source.parse(line)] + list(source.flush())
    last = part.rpartition(b"\n")[2]
    return found + [event for line in (last + text[cut:]).split(b"\n") for event in source.parse(line)]


@pytest.mark.parametrize("name", STEPS)
def test_a_log_reads_the_same_wherever_its_writer_paused(name: str) -> None:
    text = (TRL / f"{name}.log").read_bytes()
    bars = list(re.finditer(rb"\d+%\|[^\r]*?\d+/\d+ \[[^\]]*\]", text))
    some = random.Random(name).sample(bars, min(len(bars), 8))

    for cut in (cut for bar in some for cut in (bar.end(), (bar.start() + bar.end()) // 2)):
        assert read_in_two_parts(text, cut) == read_text(text), cut


def test_a_resume_behind_the_bar_of_a_killed_trainer_is_read_right_also_after_a_pause() -> None:
    text = (TRL / "resumed_buffered.log").read_bytes()
    killed = max(bar.end() for bar in re.finditer(rb"47/80 \[[^\]]*\](?=\[INFO\])", text))

    found = [event.step for event in read_in_two_parts(text, killed) if isinstance(event, Record)]

    assert found == [*range(1, 41), *range(41, 81)]


def test_a_log_as_one_line_is_read_in_time() -> None:
    content = 10 * (TRL / "constant_reward.log").read_bytes()
    line = content.replace(b"\n", b"\r")
    begun = time.process_time()
    for piece in line.decode().split("\r"):
        re.search(r"\{'loss'[^{}]*\}", piece)
    plain, begun = time.process_time() - begun, time.process_time()
    found = [event for event in TrlConsole().parse(line) if isinstance(event, Record)]

    assert len(found) == 10 * len(STEPS["constant_reward"])
    assert time.process_time() - begun < 100 * plain

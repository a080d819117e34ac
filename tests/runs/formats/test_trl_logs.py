"""Logs that TRL wrote for us."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.runs.formats.trl_console import TrlConsole
from exporter.runs.signals.record import Event, Record
from tests.own_logs import TRL


def read_text(text: bytes) -> list[Event]:
    source = TrlConsole()
    return [event for line in text.split(b"\n") for event in source.parse(line)]


def test_a_log_cut_anywhere_has_rising_steps() -> None:
    content = (TRL / "every5.log").read_bytes()
    for cut in range(0, len(content), 1999):
        found = [event.step for event in read_text(content[cut:]) if isinstance(event, Record)]
        assert all(a < b for a, b in pairwise(found))
        assert len(found) <= 40


def read_in_two_parts(text: bytes, cut: int) -> list[Event]:
    """As a log is read whose writer paused there for so long that its last line was released."""
    source, part = TrlConsole(), text[:cut]
    found = [event for line in part.split(b"\n") for event in source.parse(line)] + list(source.flush())
    last = part.rpartition(b"\n")[2]
    return found + [event for line in (last + text[cut:]).split(b"\n") for event in source.parse(line)]


@pytest.mark.parametrize("log", sorted(TRL.glob("*.log")), ids=lambda log: log.stem)
def test_a_log_reads_the_same_wherever_its_writer_paused(log: Path) -> None:
    text = log.read_bytes()
    bars = list(re.finditer(rb"\d+%\|[^\r]*?\d+/\d+ \[[^\]]*\]", text))
    some = random.Random(log.stem).sample(bars, min(len(bars), 8))

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

    assert len(found) == 10 * 120
    assert time.process_time() - begun < 100 * plain

"""The logs here say what stands beside them, however they arrive (``python -m tests.runs.formats``)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from exporter.runs.formats.prefixes import Prefixes
from exporter.runs.readers.content import reader_of
from exporter.runs.signals.record import Event, Record
from tests.runs.formats.__main__ import FORMATS, HERE, golden, logs, parse

LOGS = sorted(HERE.glob("*.log"))
OPEN = (
    *("areal_console", "clu_console", "csv", "deepspeed_chat_console", "epoch_console", "nemo_rl_console"),
    *("prime_rl_console", "verl_console"),
)
"""Formats whose lines show no end: a number that is cut there is still one."""
FOLDED = "Tinker's table in a narrow terminal"
"""A pause between the two rows of a folded key shows the first one alone."""
Said = tuple[dict[tuple[str, str, int], dict[str, str]], list[str]]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_says_what_stands_beside_it(path: Path) -> None:
    assert golden(path) == path.with_suffix(".events").read_text(encoding="utf-8")


def said(events: Iterable[Event | str]) -> Said:
    """The values of each step, and all else; a step that is read in parts is one."""
    steps: dict[tuple[str, str, int], dict[str, str]] = {}
    others = []
    for event in events:
        if isinstance(event, Record):
            step = steps.setdefault((event.run, event.stream, event.step), {})
            step.update({key: repr(value) for key, value in event.values.items()})
        else:
            others.append(str(event))
    return steps, others


def grown(name: str, log: bytes, sizes: Iterable[int], path: Path) -> list[Event | str]:
    """The events of a file that grows by so many bytes at a time, and is read after each."""
    source, prefixes, events = FORMATS[name][1](), Prefixes(), list[Event | str]()
    reader = reader_of("text", lambda: [path])
    path.write_bytes(b"")
    for size in sizes:
        with path.open("ab") as file:
            file.write(log[:size])
        log = log[size:]
        if block := reader.poll(0.0):
            events += [*parse(source, prefixes.strip(block.lines)), *source.flush()]
    return events


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_says_the_same_however_it_arrives(path: Path, tmp_path: Path) -> None:
    random = Random(path.stem)
    for title, log in logs(path):
        whole = said(grown(path.stem, log, [len(log)], tmp_path / "a"))
        lines = said(grown(path.stem, log, map(len, log.splitlines(keepends=True)), tmp_path / "b"))
        odd = said(grown(path.stem, log, (random.randrange(1, 60) for _ in log), tmp_path / "c"))

        assert title == FOLDED or (lines, odd) == (whole, whole), title


@pytest.mark.parametrize("path", [path for path in LOGS if path.stem not in OPEN], ids=lambda path: path.stem)
def test_a_line_cut_anywhere_holds_no_cut_number(path: Path) -> None:
    random, form = Random(path.stem), FORMATS[path.stem][1]
    for title, log in logs(path):
        lines = Prefixes().strip(log[:-1].split(b"\n"))
        for at in random.choices(range(len(lines)), k=15):
            found = []
            for last in ([], [lines[at]], [lines[at][: random.randrange(len(lines[at]) + 1)]]):
                source = form()
                steps = said([*parse(source, [*lines[:at], *last]), *source.flush()])[0].values()
                found.append({pair for values in steps for pair in values.items()})
            before, whole, cut = found

            assert cut <= before | whole, title

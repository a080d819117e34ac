"""Public logs are distinguished by what stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.runs.readers.content import content
from exporter.runs.signals.record import Record, number
from exporter.runs.sources import recognise
from exporter.runs.sources.line_consoles import VerlConsole
from tests.runs.sources.test_sources import independent

CONSOLE_LOGS = 16


def console_logs(real_logs: Path) -> list[Path]:
    found = sorted((real_logs / "verl_console").glob("*.log"))
    assert len(found) == CONSOLE_LOGS
    return found


def test_real_console_logs_hold_the_records_that_a_plain_search_finds(real_logs: Path) -> None:
    for log in console_logs(real_logs):
        content = log.read_bytes()
        source = VerlConsole()
        events = [event for line in content.split(b"\n") for event in source.parse(line)]
        found = [event for event in events if isinstance(event, Record)]
        expected = independent(content.decode("utf-8", "replace"))

        assert [record.step for record in found] == [step for step, _ in expected], log.name
        for record, (step, pairs) in zip(found, expected, strict=True):
            numbers = sum(number(value) is not None for value in record.values.values())
            assert pairs - 1 <= numbers <= pairs, f"{log.name} step {step}"


def test_real_console_logs_are_recognised_by_their_records_only(real_logs: Path) -> None:
    for log in console_logs(real_logs):
        recognised = [line for line in log.read_bytes().split(b"\n") if recognise(line)]

        assert recognised, log.name
        assert all(b"step:" in line for line in recognised)


@pytest.mark.parametrize(
    ("folder", "kind", "sources"),
    [
        ("verl_console", "text", {"verl_console"}),
        ("trl_console", "text", {"trl_console"}),
        ("jsonl", "text", {"flat_jsonl"}),
        ("verl_csv", "text", {"csv"}),
        ("ragen_csv", "text", {"csv"}),
        ("wandb_csv", "text", {"csv"}),
        ("trl_state", "document", {"trainer_state", "json_list"}),
        ("jsonl", "document", {"json_list"}),
        ("prom", "text", set()),
    ],
)
def test_real_files_are_recognised_as_what_they_are_wherever_one_begins_to_read(
    real_logs: Path, folder: str, kind: str, sources: set[str]
) -> None:
    files = [path for path in (real_logs / folder).iterdir() if content(path) == kind]
    texts = [path.read_bytes() for path in files]
    lines = [line for text in texts for line in (text.split(b"\n") if kind == "text" else [text])]

    assert files
    assert {found.name for line in lines if (found := recognise(line, kind))} == sources


def test_records_cut_by_a_terminal_miss_fields_and_invent_none(real_logs: Path) -> None:
    log = next(path for path in console_logs(real_logs) if "opd_ry3hgbx5" in path.name)
    events = [event for line in log.read_bytes().split(b"\n") for event in VerlConsole().parse(line)]
    found = [event for event in events if isinstance(event, Record)]
    cut = [record for record in found if "critic/score/mean" not in record.values]
    seen = {key for record in found if record not in cut for key in record.values}

    assert len(cut) == 18
    assert all(key in seen or key.startswith("val") for record in cut for key in record.values)

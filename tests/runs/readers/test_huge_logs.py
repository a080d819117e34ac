"""Files far larger than memory: read in bounded memory, and given up where they hold nothing."""

from __future__ import annotations

import re
from pathlib import Path

from tests.runs.lines import measured, verl_json
from tests.runs.test_main import Exporter, Start, _start  # noqa: F401  (a fixture)

GB = 10**9
PEAK = 150 * 2**20
"""Bytes: an exporter without a single log takes a third of it."""


def write_at(path: Path, offset: int, first: int, last: int) -> None:
    """Steps there, behind the end of whatever line stands before; what is left out is a hole."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(
            b"\n" + "".join(verl_json(step, measured(step)) for step in range(first, last + 1)).encode()
        )


def peak(exporter: Exporter) -> int:
    """Bytes that the process had in memory at most."""
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def test_a_log_of_2_gb_is_read_to_its_end_in_bounded_memory(folder: Path, start: Start) -> None:
    log = folder / "a.jsonl"
    log.touch()
    for number, offset in enumerate((0, GB // 2, GB, 2 * GB)):
        write_at(log, offset, 100 * number + 1, 100 * number + 100)
    exporter = start("--path", folder)
    found = exporter.until(lambda found: found.value("rl_step", run="a") == 400)

    assert found.value("rl_records_total", run="a") == 400
    assert found.value("stepwatch_lines_dropped_total", reason="too_long") == 3
    assert found.value("stepwatch_lines_dropped_total", reason="malformed") == 0
    assert peak(exporter) < PEAK


def test_a_file_of_2_gb_without_a_record_is_given_up_early(folder: Path, start: Start) -> None:
    with (folder / "a.log").open("wb") as file:
        file.write(b"nothing to see here\n" * 1000)
        file.truncate(2 * GB)
    exporter = start("--path", folder)
    found = exporter.until(lambda found: found.value("stepwatch_files", kind="no_records") == 1)

    assert (found.value("stepwatch_bytes_read_total") or GB) < GB / 10
    assert found.value("stepwatch_unread_bytes") == 0
    assert peak(exporter) < PEAK

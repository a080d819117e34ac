"""What happens around a log and its exporter: signals, calls that block, rights, replaced files, links."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from exporter.runs.readers import follow as follow_module
from tests.real.waiting import HANG_SECONDS, in_time
from tests.runs.conftest import Clock, Watching
from tests.runs.lines import append, console, json_steps, measured, verl_json
from tests.runs.logs.test_unreadable import _other, _runs  # noqa: F401  (fixtures)
from tests.runs.speaking import Speaking
from tests.runs.test_main import Exporter, Start, _start, has  # noqa: F401  (a fixture)

# signals


def seconds_to_end(exporter: Exporter) -> float:
    started = time.monotonic()
    code, _, errors = exporter.end()
    assert (code, errors) == (0, "")
    return time.monotonic() - started


@pytest.mark.parametrize("moment", [0.0, 0.6])
@pytest.mark.slow
def test_a_signal_in_the_middle_of_a_cold_start_ends_it_within_a_second(
    folder: Path, start: Start, moment: float
) -> None:
    others = {f"timing_s/part_{number}": number / 7 for number in range(60)}  # as many keys as verl logs
    lines = "".join(verl_json(step, {**measured(step), **others}) for step in range(1, 1000))
    log = folder / "a.jsonl"
    log.write_text(lines * (200_000_000 // len(lines)))
    exporter = start("--path", folder)
    exporter.until(lambda found: (found.value("stepwatch_bytes_read_total") or 0) > 0)
    time.sleep(moment)
    took = seconds_to_end(exporter)
    log.unlink()

    assert in_time(took, 1)


def test_a_page_that_hangs_holds_up_neither_the_runs_nor_the_end(folder: Path, start: Start) -> None:
    asked, done = Event(), Event()

    def hang(_handler: Any) -> None:
        asked.set()
        done.wait(HANG_SECONDS)

    append(folder / "a.jsonl", *json_steps(1, 3))
    with Speaking(hang) as page:
        exporter = start("--path", folder, "--pages", f'[{{"url": "{page.url}/metrics"}}]')
        assert asked.wait(HANG_SECONDS)
        exporter.until(has("a"))
        append(folder / "a.jsonl", *json_steps(4, 4))
        exporter.until(lambda found: found.value("rl_step", run="a") == 4)
        took = seconds_to_end(exporter)
        done.set()

    assert in_time(took, 1)


# calls that block


def test_a_pipe_in_the_place_of_a_log_blocks_no_one(folder: Path, start: Start) -> None:
    log = folder / "a.jsonl"
    for path in (log, folder / "b.jsonl"):
        append(path, *json_steps(1, 3, reward=ord(path.stem) / 50))
    exporter = start("--path", folder)
    exporter.until(lambda found: found.runs() == {"a", "b"})
    pipe = folder.with_name("pipe")
    os.mkfifo(pipe)
    pipe.replace(log)
    append(folder / "b.jsonl", *json_steps(4, 4))
    found = exporter.until(lambda found: found.value("rl_step", run="b") == 4)
    assert found.value("rl_step", run="a") == 3
    log.unlink()
    append(log, *json_steps(1, 5, reward=ord("a") / 50))

    assert (
        exporter.until(lambda found: found.value("rl_step", run="a") == 5).value("rl_records_total", run="a")
        == 5
    )


# rights


def test_a_log_that_is_closed_while_it_is_followed_is_read_on_once_it_is_opened(
    runs: Path, other: Callable[..., Exporter]
) -> None:
    log = runs / "a.jsonl"
    append(log, *json_steps(1, 3))
    exporter = other(runs)
    exporter.until(has("a"))
    log.chmod(0o600)
    append(log, *json_steps(4, 5))
    found = exporter.until(lambda found: found.value("stepwatch_files", kind="unreadable") == 1)
    assert (found.value("rl_step", run="a"), found.state("a")) == (3, "running")
    log.chmod(0o644)
    found = exporter.until(lambda found: found.value("rl_step", run="a") == 5)

    assert found.value("rl_records_total", run="a") == 5
    assert found.value("stepwatch_file_errors_total", reason="unreadable") == 1
    assert found.value("stepwatch_file_restarts_total") == 0


# replaced files


def test_a_file_that_is_replaced_while_it_is_read_is_read_once_and_whole(
    folder: Path, watched: Watching, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "BLOCK", 2000)
    log, other = folder / "a.jsonl", folder.with_name("other")
    append(log, *json_steps(1, 100))
    append(other, *json_steps(1, 120))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.replace(log)

    monkeypatch.setattr(clock, "sleep", sleep)
    found = watched().look()

    assert len(pauses) > 3
    assert found.value("rl_step", run="a") == 120
    assert found.value("rl_records_total", run="a") == 120
    assert found.value("stepwatch_file_restarts_total") == 1
    assert found.value("stepwatch_lines_dropped_total", reason="malformed") == 0


@pytest.mark.parametrize("times", range(1, 5))
def test_a_log_that_is_saved_by_rename_at_each_step_is_one_run(
    folder: Path, watched: Watching, times: int
) -> None:
    log, other = folder / "a.jsonl", folder.with_name("other")
    page = watched()
    for last in range(10, 10 + times):
        other.write_text("".join(json_steps(1, last)))
        other.replace(log)
        found = page.discover()

    assert found.value("rl_records_total", run="a") == last
    assert found.value("rl_step", run="a") == last
    assert found.state("a") == "running"


# two files of one run


def test_a_run_that_writes_lines_and_a_console_log_is_one_run_of_a_real_exporter(
    folder: Path, tmp_path: Path, start: Start
) -> None:
    (folder / "ppo").mkdir()

    def log_step(step: int) -> None:
        values = measured(step, policy_loss=step % 13 / 17)
        append(folder / "ppo/gsm8k.jsonl", verl_json(step, values))
        append(folder / "ppo/train.log", console(step, values))

    for step in range(1, 31):
        log_step(step)
    exporter = start("--path", folder, "--state-dir", tmp_path / "state")
    exporter.until(lambda found: found.runs() == {"ppo/gsm8k"})
    for step in range(31, 35):
        log_step(step)
    found = exporter.until(lambda found: found.value("rl_step", run="ppo/gsm8k") == 34)
    assert found.runs() == {"ppo/gsm8k"}
    assert found.value("rl_records_total", run="ppo/gsm8k") == 34
    assert found.value("stepwatch_duplicate_logs") == 1

    exporter.end()
    again = start("--path", folder, "--state-dir", tmp_path / "state")
    assert again.until(has("ppo/gsm8k")).runs() == {"ppo/gsm8k"}

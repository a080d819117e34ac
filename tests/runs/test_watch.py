"""The run folder from the outside: files change, time passes, and the page says what is true."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.signals.tables import frameworks
from tests.runs.conftest import Clock, Watched, Watching, saved_logs
from tests.runs.lines import append, console, json_steps, measured, verl_json

HOUR = 3600.0


def console_steps(first: int, last: int, **more: float) -> list[str]:
    return [console(step, measured(step, **more)) for step in range(first, last + 1)]


# finding and naming runs


def test_runs_of_one_name_get_distinct_names_and_are_counted(folder: Path, watched: Watching) -> None:
    for name in ("a.jsonl", "a.log", "b.log"):
        append(folder / name, *console_steps(1, 3))
    page = watched().look()

    assert page.runs() == {"a.jsonl", "a.log", "b"}
    assert page.value("stepwatch_name_collisions") == 2


def test_an_unknown_file_is_counted_and_is_not_a_run(folder: Path, watched: Watching) -> None:
    (folder / "notes.txt").write_text("nothing to see\n")
    (folder / "empty.log").touch()
    (folder / "model.pt").write_bytes(bytes(range(256)) * 100)
    append(folder / "a.log", *console_steps(1, 3))
    page = watched().look()

    found = {dict(labels)["kind"]: count for labels, count in page.all("stepwatch_files").items()}

    assert found == {"text": 1, "empty": 1, "binary": 1, "log": 1, "unreadable": 0, "old": 0}
    assert page.runs() == {"a"}


def test_a_text_without_records_is_given_up_and_a_new_file_in_its_place_is_not(
    folder: Path, watched: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.runs.logs.log.GIVE_UP_BYTES", 1000)
    log = folder / "a.log"
    log.write_text("nothing to see\n" * 100)
    page = watched()
    assert page.look().value("stepwatch_files", kind="no_records") == 1
    append(log, *console_steps(1, 3))
    assert page.discover().runs() == set()
    log.write_text("".join(console_steps(1, 3)))

    assert page.discover().runs() == {"a"}


def test_a_log_in_the_place_of_a_checkpoint_becomes_a_run(folder: Path, watched: Watching) -> None:
    (folder / "output.bin").write_bytes(bytes(range(256)) * 100)
    page = watched()
    page.look()
    other = folder.parent / "other"
    other.write_text("".join(console_steps(1, 3)))
    other.replace(folder / "output.bin")

    assert page.discover().runs() == {"output"}


def test_a_first_record_far_behind_other_text_is_found_and_the_text_before_it_is_read(
    folder: Path, watched: Watching
) -> None:
    log = folder / "a.log"
    append(log, "Total training steps: 100\n")
    page = watched()
    page.look()
    append(log, *("loading weights\n" for _ in range(50)))
    page.look(3.0)
    append(log, *console_steps(1, 3))

    assert page.look(3.0).value("rl_total_steps", run="a") == 100


@pytest.mark.slow
def test_ten_thousand_unrelated_files_are_left_alone(folder: Path, watched: Watching) -> None:
    for number in range(10_000):
        os.mknod(folder / f"{number}.lock")
    append(folder / "a.log", *console_steps(1, 3))
    page = watched()
    page.look()

    assert page.look(0.5).runs() == {"a"}
    assert page.scrape().value("stepwatch_files", kind="empty") == 10_000


def test_long_logs_keep_a_short_one_waiting_for_two_looks_at_most(
    folder: Path, watched: Watching, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.runs.readers.follow.BLOCK", 2000)
    monkeypatch.setattr(clock, "sleep", lambda _: clock.advance(0.3))
    page = watched()
    for name in "abcde":
        append(folder / f"{name}.jsonl", *json_steps(1, 500, reward=ord(name) / 100))
    append(folder / "short.jsonl", *json_steps(1, 2))
    assert page.watch.look()
    assert page.watch.look()
    assert page.scrape().runs() == {"short"}
    append(folder / "short.jsonl", *json_steps(3, 3))
    assert page.watch.look()

    assert page.scrape().value("rl_step", run="short") == 3
    assert (page.scrape().value("stepwatch_unread_bytes") or 0) > 0
    assert page.look().runs() == {*"abcde", "short"}


# growing, restarting, vanishing


def test_a_line_that_is_not_a_record_is_counted_and_costs_no_other(folder: Path, watched: Watching) -> None:
    append(folder / "a.jsonl", *json_steps(1, 2), "{torn\n", "\n", "not json\n", *json_steps(3, 4))
    page = watched().look()

    assert page.value("rl_records_total", run="a") == 4
    assert page.value("stepwatch_lines_read_total") == 7
    assert page.value("stepwatch_lines_dropped_total", reason="malformed") == 2


def test_a_spike_after_a_resume_is_held_as_before(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.jsonl"
    append(log, *json_steps(1, 100))
    page.look()
    log.write_text("".join(json_steps(100, 100)))
    page.look(1.0)
    append(log, *json_steps(101, 103, kl=9.0))
    page.look(0.5)
    append(log, *json_steps(104, 106))

    assert page.look(0.5).value("rl_min_over_steps", run="a", signal="kl", steps="3") == 9.0


def test_what_stands_in_a_replaced_log_is_history_and_raises_nothing(folder: Path, watched: Watching) -> None:
    """A copied log (rsync) is replaced as a whole, again and again."""
    page, log, copy = watched(), folder / "a.jsonl", folder.parent / "copy"
    lines = [*json_steps(1, 10), *json_steps(11, 13, kl=9.0), *json_steps(14, 100)]
    append(log, *lines)
    page.look()
    append(log, *json_steps(101, 101))
    page.look(1.0)
    copy.write_text("".join([*lines, *json_steps(101, 102)]))
    os.utime(copy, (page.clock.wall - 5, page.clock.wall - 5))
    copy.replace(log)
    written = log.stat().st_mtime
    after = page.look(1.0)

    assert after.value("rl_step", run="a") == 102
    assert after.value("rl_last_step_timestamp_seconds", run="a") == written
    assert (after.value("rl_min_over_steps", run="a", signal="kl", steps="3") or 0.0) < 0.1


# replay


def test_the_first_live_step_shows_them_and_nothing_of_the_replay_is_held(
    folder: Path, watched: Watching
) -> None:
    page, log = watched(), folder / "a.jsonl"
    append(log, *json_steps(1, 10), *json_steps(11, 13, kl=9.0), *json_steps(14, 100))
    page.look()
    append(log, *json_steps(101, 101))
    after = page.look(1.0)

    assert after.value("rl_min_over_steps", run="a", signal="kl", steps="3") == min(
        measured(step)["actor/kl_loss"] for step in (99, 100, 101)
    )


def test_a_live_spike_is_held_until_the_next_scrapes_have_seen_it(folder: Path, watched: Watching) -> None:
    page, log = watched(hold=15.0), folder / "a.jsonl"
    append(log, *json_steps(1, 100))
    page.look()
    for step, kl in enumerate([9.0, 9.0, 9.0, 0.01, 0.01, 0.01], start=101):
        append(log, *json_steps(step, step, kl=kl))
        page.look(0.5)

    assert page.scrape().value("rl_min_over_steps", run="a", signal="kl", steps="3") == 9.0
    assert page.look(13.0).value("rl_min_over_steps", run="a", signal="kl", steps="3") == 9.0
    assert page.look(3.0).value("rl_min_over_steps", run="a", signal="kl", steps="3") == 0.01


def test_a_log_whose_first_record_arrives_before_our_eyes_is_a_run_that_can_fail(
    folder: Path, watched: Watching
) -> None:
    page, log = watched(), folder / "a.log"
    append(log, "loading weights\n")
    page.look()
    append(log, *console_steps(1, 1))
    page.look(3.0)
    append(log, "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n")

    assert page.look(1.0).state("a") == "failed"


# states


def test_a_run_is_finished_when_its_log_says_so(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, *console_steps(1, 3))
    assert page.look().state("a") == "running"
    append(log, "\"Final validation metrics: {'val/acc': 0.5}\"\n")
    assert page.look(1.0).state("a") == "finished"
    append(log, "Exception ignored in: <function ...>\nTraceback (most recent call last):\n")

    assert page.look(HOUR).state("a") == "finished"


def test_a_run_that_goes_on_after_its_end_is_running(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, *console_steps(1, 3), "Job 'raysubmit_x1' failed\n")
    page.look()
    append(log, *console_steps(4, 4))

    assert page.look(1.0).state("a") == "running"


def test_a_caught_traceback_is_not_a_failure_and_one_followed_by_silence_is(
    folder: Path, watched: Watching
) -> None:
    page, log = watched(), folder / "a.log"
    append(log, *console_steps(1, 3))
    page.look()
    append(log, "Traceback (most recent call last):\n")
    assert page.look(10.0).state("a") == "running"
    append(log, *console_steps(4, 4))
    page.look(1.0)
    append(log, "Traceback (most recent call last):\n")
    page.look(1.0)

    assert page.look(59.0).state("a") == "running"
    assert page.look(2.0).state("a") == "failed"


@pytest.mark.parametrize("end", ["", "Job 'raysubmit_x1' failed\n"])
def test_a_run_that_had_ended_badly_before_it_was_watched_is_dormant(
    folder: Path, watched: Watching, end: str, clock: Clock
) -> None:
    log = folder / "a.log"
    append(log, *console_steps(1, 3), end)
    os.utime(log, (clock.wall - HOUR, clock.wall - HOUR))
    page = watched().look()

    assert page.runs() == set()
    assert page.value("stepwatch_dormant_runs") == 1


def test_a_run_that_had_finished_before_it_was_watched_is_shown(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    log = folder / "a.log"
    append(log, *console_steps(1, 3), "Job 'raysubmit_x1' succeeded\n")
    os.utime(log, (clock.wall - HOUR, clock.wall - HOUR))

    assert watched().look().state("a") == "finished"


def test_a_dormant_run_that_logs_again_wakes_up(folder: Path, watched: Watching, clock: Clock) -> None:
    log = folder / "a.jsonl"
    append(log, *json_steps(1, 3))
    os.utime(log, (clock.wall - HOUR, clock.wall - HOUR))
    page = watched()
    page.look()
    append(log, *json_steps(4, 4))
    after = page.look(1.0)

    assert after.state("a") == "running"
    assert after.value("stepwatch_dormant_runs") == 0


@pytest.mark.parametrize("end", ["", "Job 'raysubmit_x1' succeeded\n", "Job 'raysubmit_x1' failed\n"])
def test_an_ended_or_silent_run_leaves_after_the_time_it_is_given(
    folder: Path, watched: Watching, end: str
) -> None:
    page, log = watched(forget_after=2 * HOUR), folder / "a.log"
    append(log, *console_steps(1, 3))
    page.look()
    append(log, *console_steps(4, 4), end)
    page.look(1.0)  # a second after it was written

    assert page.look(2 * HOUR - 2.0).runs() == {"a"}
    assert page.look(2.0).runs() == set()


def test_a_forgotten_run_that_logs_again_is_back_with_its_history(
    folder: Path, watched: Watching, clock: Clock
) -> None:
    page, log = watched(forget_after=HOUR), folder / "a.jsonl"
    append(log, *json_steps(1, 50))
    page.look()
    assert page.look(2 * HOUR).runs() == set()
    append(log, *json_steps(51, 51))
    os.utime(log, (clock.wall, clock.wall))

    assert page.discover().value("rl_records_total", run="a") == 51


def test_a_deleted_log_is_forgotten_for_good(folder: Path, watched: Watching, tmp_path: Path) -> None:
    page, log = watched(forget_after=HOUR, state_dir=tmp_path / "state"), folder / "a.jsonl"
    append(log, *json_steps(1, 50))
    page.look()
    page.watch.save()
    log.unlink()
    page.look(2 * HOUR)

    assert list(page.watch.logs) == []
    assert saved_logs(tmp_path / "state") == set()


# real writers, seen through the real /proc

Writer = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture(name="writer")
def _writer() -> Iterator[Writer]:
    """A process that keeps the log open and writes what it reads; killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(log: Path) -> subprocess.Popen[str]:
        loop = "for line in sys.stdin: log.write(line); log.flush(); print()"
        code = f"import sys\nlog = open(sys.argv[1], 'a')\n{loop}"
        command = [sys.executable, "-uc", code, str(log)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def write(process: subprocess.Popen[str], *lines: str) -> None:
    for line in lines:
        process.stdin.write(line)
        process.stdin.flush()
        process.stdout.readline()


def logged_and_killed(page: Watched, log: Path, writer: Writer, *start: str, end: str = "") -> None:
    """A writer goes on after three steps, logs one more at each look, then the ``end``, and is killed."""
    append(log, *start, *console_steps(1, 3))
    process = writer(log)
    page.look()
    for line in (*console_steps(4, 14), *filter(None, [end])):
        write(process, line)
        page.look(1.5)
    process.kill()
    process.wait()


def test_a_vanished_run_is_vanished_at_once_after_a_restart_of_the_exporter(
    folder: Path, tmp_path: Path, watched: Watching, writer: Writer
) -> None:
    page, log = watched(proc=Path("/proc"), state_dir=tmp_path / "state"), folder / "a.log"
    logged_and_killed(page, log, writer, "Total training steps: 100\n")
    assert page.look(1.5).state("a") == "running"
    assert page.look(11.0).state("a") == "vanished"
    page.watch.save()

    restarted = watched(proc=Path("/proc"), state_dir=tmp_path / "state")

    assert restarted.look().state("a") == "vanished"
    assert restarted.scrape().value("rl_run_writer_present", run="a") == 0


def test_a_writer_that_dies_while_the_exporter_is_away_is_missed_after_it_is_back(
    folder: Path, tmp_path: Path, watched: Watching, writer: Writer
) -> None:
    page, log = watched(proc=Path("/proc"), state_dir=tmp_path / "state"), folder / "a.log"
    append(log, "Total training steps: 100\n", *console_steps(1, 3))
    process = writer(log)
    page.look()
    for line in console_steps(4, 14):
        write(process, line)
        page.look(1.5)
    page.watch.save()
    process.kill()
    process.wait()

    restarted = watched(proc=Path("/proc"), state_dir=tmp_path / "state")

    assert restarted.look().state("a") == "running"
    assert restarted.look(11.0).state("a") == "vanished"


def test_a_log_that_grows_after_its_writer_left_has_another_one_that_cannot_be_seen(
    folder: Path, watched: Watching, writer: Writer
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    logged_and_killed(page, log, writer, "Total training steps: 100\n")
    page.look(1.5)
    assert page.look(11.0).state("a") == "vanished"

    append(log, *console_steps(15, 15))

    assert page.look(1.5).state("a") == "running"
    assert page.scrape().value("rl_run_writer_present", run="a") is None


def test_a_writer_that_opens_appends_and_closes_never_counts_as_gone(folder: Path, watched: Watching) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, "Total training steps: 100\n")
    for step in range(1, 10):
        append(log, *console_steps(step, step))
        after = page.look(20.0)

    assert after.state("a") == "running"
    assert after.value("rl_run_writer_present", run="a") is None
    assert page.look(570.0).state("a") == "running"  # 590 s after it was written


def test_a_reader_that_leaves_says_nothing_about_the_run(folder: Path, watched: Watching) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, "Total training steps: 100\n", *console_steps(1, 3))
    tail = subprocess.Popen(["tail", "-f", log], stdout=subprocess.DEVNULL)
    for _ in range(5):
        page.look(1.5)
    tail.kill()
    tail.wait()
    page.look(6.0)

    assert page.look(30.0).state("a") == "running"
    assert page.scrape().value("rl_run_writer_present", run="a") is None


# the exporter's own numbers


def test_a_run_that_logs_every_signal_and_more_has_at_most_270_series(
    folder: Path, watched: Watching
) -> None:
    keys = [key.names[0] for keys in frameworks()["verl"].keys.values() for key in keys if key.how == "key"]
    own = [f"env/{number}" for number in range(100)]
    page, log = watched(), folder / "a.jsonl"
    append(
        log,
        *(
            verl_json(step, {key: step + index / 7 for index, key in enumerate([*keys, *own])})
            for step in range(80)
        ),
    )
    page.look()
    append(log, *json_steps(81, 82))
    found = page.look(1.0)

    assert 150 < len([key for key in found.samples if ("run", "a") in key[1]]) <= 270

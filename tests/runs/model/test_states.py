"""How each format tells the way a run went on: by its words, by its writer, by its silence."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs.conftest import Watched, Watching
from tests.runs.formats.test_live_formats import Trainer, _trainer  # noqa: F401  (a fixture)
from tests.runs.lines import append, console, measured, scoped, verl_json
from tests.runs.logs.test_unreadable import _other, _runs  # noqa: F401  (fixtures)
from tests.runs.scrape import Scrape
from tests.runs.test_main import Exporter, Start, _start, has  # noqa: F401  (a fixture)

Holding = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture(name="holding")
def _holding() -> Iterator[Holding]:
    """A process that has the file open for writing, as a trainer has; killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def hold(path: Path) -> subprocess.Popen[str]:
        command = ["sh", "-c", 'exec 3>>"$1"; echo; exec sleep 1000', "sh", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def swift(step: int) -> str:
    """A line of ms-swift's log, which tells the total."""
    values = {"loss": step / 7, "reward": step / 90, "global_step/max_steps": f"{step}/100"}
    return json.dumps(values) + "\n"


def flat(step: int, **more: int) -> str:
    """A line of a home-made loop."""
    return json.dumps({"step": step, "reward": step / 90, "kl": step / 900, **more}) + "\n"


TEXTS: dict[str, Callable[[int], str]] = {
    "verl_jsonl": lambda step: verl_json(step, measured(step)),
    "scoped_jsonl": lambda step: scoped(step, {"reward_mean": step / 90, "kl_div": step / 900}),
    "csv": lambda step: f"{step},{step / 90},{step / 900}\n",
    "flat_jsonl": swift,
}
"""A step of each format; only the last one tells how many there will be."""

HEADERS = {"csv": "step,reward_mean,entropy\n"}


def followed(page: Watched, log: Path, line: Callable[[int], str], steps: range) -> Scrape:
    for step in steps:
        append(log, line(step))
        found = page.look(1.5)
    return found


@pytest.mark.parametrize("kind", TEXTS)
def test_a_run_whose_writer_is_killed_vanished_if_the_total_is_known_and_stopped_if_not(
    folder: Path, watched: Watching, holding: Holding, kind: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, HEADERS.get(kind, ""), TEXTS[kind](1))
    page.look()
    process = holding(log)
    found = followed(page, log, TEXTS[kind], range(2, 12))
    assert found.value("rl_run_info", run="a", source=kind) == 1
    assert (found.state("a"), found.value("rl_run_writer_present", run="a")) == ("running", 1)
    process.kill()
    process.wait()
    assert page.look(1.5).state("a") == "running"
    page.look(6.0)

    assert page.look(6.0).state("a") == ("vanished" if kind == "flat_jsonl" else "stopped")


@pytest.mark.parametrize("kind", TEXTS)
def test_a_run_that_no_one_is_seen_to_write_stops_after_silence_only(
    folder: Path, watched: Watching, kind: str
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, HEADERS.get(kind, ""), TEXTS[kind](1))
    page.look()
    found = followed(page, log, TEXTS[kind], range(2, 12))
    assert (found.state("a"), found.value("rl_run_writer_present", run="a")) == ("running", None)

    assert page.look(590.0).state("a") == "running"
    assert page.look(20.0).state("a") == "stopped"


def test_lines_that_tell_the_total_end_with_it(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, swift(1))
    page.look()
    append(log, swift(99))
    assert page.look(1.0).state("a") == "running"
    append(log, swift(100))

    assert page.look(1.0).state("a") == "running"
    assert page.look(70.0).state("a") == "finished"
    assert page.look(3600.0).state("a") == "finished"


def test_a_limit_on_an_agents_turns_is_no_total(folder: Path, watched: Watching, holding: Holding) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, flat(1, max_steps=10))
    page.look()
    process = holding(log)
    for step in range(2, 30):
        append(log, flat(step, max_steps=10))
        found = page.look(1.5)
        assert found.state("a") == "running"
        assert found.value("rl_total_steps", run="a") == (10 if step <= 10 else None)
    process.kill()
    process.wait()
    page.look(6.0)

    assert page.look(12.0).state("a") == "stopped"


def test_a_total_that_grows_with_the_step_makes_no_run_vanish(
    folder: Path, watched: Watching, holding: Holding
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, flat(1, total_steps=512))
    page.look()
    process = holding(log)
    found = followed(page, log, lambda step: flat(step, total_steps=512 * step), range(2, 12))
    assert (found.state("a"), found.value("rl_total_steps", run="a")) == ("running", None)
    process.kill()
    process.wait()
    page.look(6.0)

    assert page.look(12.0).state("a") == "stopped"


def test_a_trainer_that_saves_after_its_last_step_is_running_until_it_ends(
    folder: Path, watched: Watching, holding: Holding
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, flat(1, total_steps=12))
    page.look()
    process = holding(log)
    followed(page, log, lambda step: flat(step, total_steps=12), range(2, 13))
    assert page.look(300.0).state("a") == "running"
    process.kill()
    process.wait()
    page.look(6.0)

    assert page.look(12.0).state("a") == "finished"


def test_a_run_that_had_made_its_last_step_is_no_hang_after_a_restart_while_its_trainer_saves(
    folder: Path, watched: Watching, holding: Holding
) -> None:
    log = folder / "a.log"
    append(log, "Total training steps: 12\n", *(console(step, measured(step)) for step in range(1, 13)))
    page = watched(proc=Path("/proc"))
    page.look()
    holding(log)
    for _ in range(10):
        append(log, "saving shard\n")
        os.utime(log, (page.clock.wall + 60.0,) * 2)
        found = page.look(60.0)
    assert found.state("a") == "running"

    assert page.look(61.0).state("a") == "finished"


def test_a_run_whose_last_planned_step_was_long_ago_has_finished_though_its_file_was_written_now(
    folder: Path, watched: Watching
) -> None:
    begin = time.time() - 7200
    log = folder / "a.jsonl"
    append(log, *(flat(step, total_steps=12, ts=int(begin) + step) for step in range(1, 13)))
    page = watched()
    page.look(1.0)

    assert page.look(1.0).state("a") == "finished"


# last words

LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-27T08:00:00 DUE TO TIME LIMIT ***\n"
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-27T08:00:00 ***\n"
NCCL = "[rank3]:[F1127 08:00:00.123456789 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 3] "
TOTAL = "Total training steps: 100\n"
SUCCEEDED = "Job 'raysubmit_k3P' succeeded\n"
TOOL = "Traceback (most recent call last):\n  File \"<stdin>\", line 1\nNameError: name 'x' is not defined\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (LIMIT, ("failed", "Slurm: time limit")),
        (f"0: {LIMIT}".replace("TIME LIMIT", "PREEMPTION"), ("failed", "Slurm: preemption")),
        (LIMIT.replace("TIME LIMIT", "NODE FAILURE, SEE LOG"), ("failed", "Slurm: node failure")),
        (f"\r  5%|5         | 5/100 [00:02<01:38,  1.2it/s]{CANCELLED}", ("stopped", "Slurm: cancelled")),
        (
            f"{NCCL}Terminating the process after attempting to dump debug info.\n",
            ("failed", "NCCL watchdog"),
        ),
        ("ray.exceptions.NodeDiedError: the node was preempted.\n", ("failed", "Ray: node preempted")),
        # what comes first explains what follows
        (f"{LIMIT}ChildFailedError\n", ("failed", "Slurm: time limit")),
        (f"{TOOL}{CANCELLED}", ("failed", None)),
        (f"{SUCCEEDED}{LIMIT}", ("finished", None)),
        (f'response: "{LIMIT}', ("", None)),
    ],
)
def test_the_last_words_of_a_log_end_its_run_by_their_cause(
    folder: Path, watched: Watching, holding: Holding, words: str, expected: tuple[str, str | None]
) -> None:
    page, logs = watched(proc=Path("/proc")), (folder / "a.log", folder / "b.log")
    append(logs[0], console(1, measured(1)))
    append(logs[1], TOTAL, console(1, measured(2)))
    page.look()
    processes = [holding(log) for log in logs]
    for step in range(2, 12):
        append(logs[0], console(step, measured(step)))
        append(logs[1], console(step, measured(step + 1)))
        page.look(1.5)
    for log, process in zip(logs, processes, strict=True):
        append(log, words)
        process.kill()
        process.wait()
    page.look(6.0)
    found = page.look(12.0)

    state, cause = expected
    assert (found.state("a"), found.state("b")) == (state or "stopped", state or "vanished")
    causes = [dict(labels)["cause"] for labels in found.all("rl_run_exit_info")]
    assert causes == [cause, cause] * (cause is not None)


@pytest.mark.parametrize("survived", [False, True])
def test_a_traceback_that_the_trainer_survived_is_no_end(
    folder: Path, watched: Watching, holding: Holding, survived: bool
) -> None:
    page, log = watched(proc=Path("/proc")), folder / "a.log"
    append(log, console(1, measured(1)))
    page.look()
    process = holding(log)
    followed(page, log, lambda step: console(step, measured(step)), range(2, 6))
    append(log, TOOL)
    page.look(1.5)
    for _ in range(5 if survived else 2):
        append(log, "a tool's answer\n")
        os.utime(log, (page.clock.wall + 20.0,) * 2)
        assert page.look(20.0).state("a") == "running"
    process.kill()
    process.wait()
    page.look(6.0)

    assert page.look(12.0).state("a") == ("stopped" if survived else "failed")


# event files


def test_a_killed_trainers_event_file_stops_and_the_next_start_runs(
    folder: Path, watched: Watching, holding: Holding, trainer: Trainer
) -> None:
    page, ppo = watched(proc=Path("/proc")), folder / "ppo"
    trainer.begins(ppo)
    trainer.logs(1)
    page.look()
    (first,) = ppo.iterdir()
    trainer.ends()
    process = holding(first)
    for step in range(2, 12):
        trainer.goes_on(first)
        trainer.logs(step)
        found = page.look(1.5)
    trainer.ends()
    assert (found.state("ppo"), found.value("rl_run_writer_present", run="ppo")) == ("running", 1)
    assert page.look(3600.0).state("ppo") == "running"
    process.kill()
    process.wait()
    page.look(6.0)
    assert page.look(11.0).state("ppo") == "stopped"

    trainer.begins(ppo)
    trainer.logs(8, 9)
    (second,) = set(ppo.iterdir()) - {first}
    trainer.ends()
    process = holding(second)
    page.discover()
    found = page.look(1.5)
    assert found.state("ppo") == "running"
    assert (found.value("rl_step", run="ppo"), found.value("rl_records_total", run="ppo")) == (9, 11)
    for _ in range(4):
        page.look(1.5)
    process.kill()
    process.wait()
    page.look(6.0)
    assert page.look(11.0).state("ppo") == "stopped"


# as another user


def writer(present: float) -> Callable[[Scrape], bool]:
    return lambda found: found.value("rl_run_writer_present", run="a") == present


def test_an_exporter_that_may_not_see_the_writer_says_nothing_about_it(
    runs: Path, start: Start, other: Callable[..., Exporter], holding: Holding
) -> None:
    log = runs / "a.log"
    append(log, "Total training steps: 100\n", console(1, measured(1)))
    process = holding(log)
    sees, may_not = start("--path", runs), other(runs)
    may_not.until(has("a"))
    sees.until(writer(1))
    append(log, console(2, measured(2)))
    may_not.until(lambda found: found.value("rl_step", run="a") == 2)
    process.kill()
    process.wait()
    sees.until(writer(0))
    found = may_not.scrape()

    assert (found.state("a"), found.value("rl_run_writer_present", run="a")) == ("running", None)

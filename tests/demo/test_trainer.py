from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from demo.scenario import SCENARIOS
from demo.trainer import REST, Trainer
from exporter.runs import signals
from exporter.runs.formats import recognise
from exporter.runs.signals.record import Ended, Event, Record, ResponseLimit, Servers, TotalSteps
from exporter.runs.stats.catalogue import JUDGED
from tests.real.waiting import HANG_SECONDS, eventually
from tests.records import split

ROOT = Path(__file__).parents[2]
NOT_OF_VERL = {
    *("reward_std", "zero_std_ratio", "filtered_group_ratio", "kl_sequence", "kl_teacher"),
    *("engine_prob_error", "engine_logprob_diff", "stale_drop_ratio"),
}
WITH_TOOLS_OR_A_RECIPE = {
    *("tool_calls", "tool_failure_ratio", "rollout_failure_ratio", "rollouts_failed"),
    "generation_rounds",
}
NOT_WHERE_NOTHING_IS_STALE = {"staleness"}
NAMED_BY_USERS = {"true_reward"}
NOW_AND_THEN = {"validation_score"}
PANELS = ROOT / "grafana" / "generated"
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def trainer(folder: Path, name: str = "healthy", *, seed: int = 1, total: int = 50) -> Trainer:
    return Trainer(BY_NAME[name], folder, seed, 0.3, total)


def lived(made: Trainer, ticks: int) -> Path:
    for _ in range(ticks):
        made.tick()
    made.close()
    return made.path


def events(log: Path) -> Iterator[Event]:
    """What the run exporter reads out of a log."""
    lines = log.read_bytes().splitlines()
    source = next(found for line in lines if (found := recognise(line)))
    for line in lines:
        yield from source.parse(line)


def records(log: Path) -> list[Record]:
    return [event for event in events(log) if isinstance(event, Record)]


@functools.cache
def watched_signals() -> frozenset[str]:
    """The signals that some rule or panel looks at.

    Few trainers log all details of collapsed rows; *Tutorial* is about metrics that are defined by hand.
    """
    files = (path for path in PANELS.rglob("*.json") if path.stem != "tutorial")
    dashboards = (json.loads(path.read_text()) for path in files)
    panels = [panel for each in dashboards for panel in each.get("panels", ()) if panel.get("type") != "row"]
    words = set(re.findall(r"\brl_(\w+)", json.dumps(panels)))
    return frozenset(words & set(signals.NAMES) | JUDGED)


@pytest.mark.parametrize("name", BY_NAME)
def test_each_run_is_read_with_every_signal_that_rules_and_panels_look_at(tmp_path: Path, name: str) -> None:
    log = lived(trainer(tmp_path, name), 11)

    first, *others = records(log)
    assert first.step == 0
    assert signals.Reading("verl").signals(first.values).keys() == {"validation_score"}
    assert [record.step for record in others] == list(range(1, 11))
    assert len(signals.Reading("verl").parts(first.values)) == 2
    left_out = {
        *(*NOT_OF_VERL, *WITH_TOOLS_OR_A_RECIPE, *NOT_WHERE_NOTHING_IS_STALE),
        *(*NAMED_BY_USERS, *NOW_AND_THEN),
    }
    for record in others:
        assert signals.Reading("verl").signals(record.values).keys() >= watched_signals() - left_out


def test_a_console_log_reports_total_limit_and_end(tmp_path: Path) -> None:
    log = lived(trainer(tmp_path), 53)

    said = [event for event in events(log) if not isinstance(event, Record)]
    assert said == [ResponseLimit(1024), TotalSteps(50), Ended("finished")]


def test_a_console_log_names_the_servers_of_the_run(tmp_path: Path) -> None:
    addresses = ("127.0.0.1:41233", "127.0.0.1:40001")
    log = lived(replace(trainer(tmp_path), servers=addresses), 3)

    assert [event for event in events(log) if isinstance(event, Servers)] == [Servers(addresses)]


def test_a_run_that_hangs_says_nothing_more(tmp_path: Path) -> None:
    log = lived(trainer(tmp_path, "hangs", total=200), 202)

    assert records(log)[-1].step == BY_NAME["hangs"].hangs_after
    assert not [event for event in events(log) if isinstance(event, Ended)]


def test_a_run_that_is_done_rests_and_starts_over_in_an_empty_file(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    lived(made, 50 + 2 + REST)
    before = made.path.read_text()
    inode = made.path.stat().st_ino

    lived(made, 4)

    assert made.path.stat().st_ino == inode
    assert [record.step for record in records(made.path)] == [0, 1, 2, 3]
    assert before.startswith(made.path.read_text())


@contextmanager
def demo(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "demo", *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_takes_the_logs_along(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "healthy.log").write_text("of another day\n")
    with demo("--path", tmp_path) as process:
        eventually(lambda: len(list((tmp_path / "demo").iterdir())) == 4)
        eventually(lambda: len(records(tmp_path / "demo" / "healthy.log")) > 1)
        assert "another day" not in (tmp_path / "demo" / "healthy.log").read_text()

        process.send_signal(number)
        out, log = process.communicate(timeout=HANG_SECONDS)

    assert (process.returncode, out) == (0, "")
    assert split(log) == (f"4 simulated runs write to {tmp_path}/demo\n", "")
    assert list((tmp_path / "demo").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--step-seconds", "0.5"], "'0.5' is not a valid step time. Expected: 0.001 to 0.4 seconds."),
        (["--step-seconds", "fast"], "'fast' is not a valid step time."),
        (["--steps", "0"], "'0' is not a number of steps. Expected one such as 12000."),
        (["--listen", "192.0.2.1"], "--listen: 192.0.2.1: Cannot assign requested address. Expected: "),
    ],
)
def test_a_wrong_flag_is_refused_with_what_was_expected(tmp_path: Path, words: list[str], says: str) -> None:
    with demo("--path", tmp_path, *words) as process:
        assert says in process.communicate(timeout=HANG_SECONDS)[1]
    assert process.returncode == 2


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with demo("--path", tmp_path / "file") as process:
        problems = split(process.communicate(timeout=HANG_SECONDS)[1])[1]

    assert process.returncode == 2
    assert problems.startswith(f"--path: {tmp_path}/file/demo: Not a directory. Expected: ")
    assert "Fix: " in problems

"""Logs that verl wrote for us, from their bytes to the page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.runs.remote.page import by_run
from tests.own_logs import CONSOLES, HEALTHY, LOGS, QUIET, RESUMED, SICK, VERL
from tests.real import prometheus
from tests.runs.conftest import Watched
from tests.runs.lines import append, console, measured
from tests.runs.verl_pages import live, one_more_step, state_at_the_end, stddevs_below_best

Watching = Callable[..., Watched]


@pytest.mark.slow
@given(cuts=st.lists(st.integers(0, 100_000), max_size=20))
@settings(max_examples=8)
def test_a_log_read_in_pieces_is_the_log_read_at_once(
    folder: Path, watched: Watching, cuts: list[int]
) -> None:
    text, log = QUIET.read_bytes(), folder / "a.log"
    log.write_bytes(text)
    at_once = live(watched(), log, 200).look(60.0)
    log.write_bytes(b"")
    page = watched()
    page.look()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
        with log.open("ab") as file:
            file.write(text[start:end])
        page.look(3.0)

    assert live(page, log, 200).look(60.0).about_run("a") == at_once.about_run("a")


def test_a_resumed_run_in_one_log_is_one_run_with_one_resume(folder: Path, watched: Watching) -> None:
    (folder / "a.log").write_bytes(RESUMED.read_bytes())
    page = watched().look()

    assert page.runs() == {"a"}
    assert page.state("a") == "finished"
    assert page.value("rl_resumes_total", run="a") == 1
    assert (page.value("rl_step", run="a"), page.value("rl_steps_seen", run="a")) == (80, 81)
    assert page.value("rl_total_steps", run="a") == 80


def test_validation_steps_ten_times_as_long_do_not_make_a_run_silent(folder: Path, watched: Watching) -> None:
    (folder / "a.log").write_bytes(RESUMED.read_bytes().partition(b"step:75 - ")[0])
    page = watched().look()
    typical = page.value("rl_step_interval_typical_seconds", run="a") or 0.0
    times = [
        float(time) for time in re.findall(rb"timing_s/step:(?:np\.\w+\()?([\d.]+)", RESUMED.read_bytes())
    ]

    assert median(times) <= typical < max(times) / 2
    assert 5 * typical > max(times)


def test_a_run_without_rewards_has_no_reward(folder: Path, watched: Watching) -> None:
    (folder / "a.log").write_bytes((VERL / "sft.log").read_bytes())
    page = watched().look()

    assert page.value("rl_step", run="a") == 70
    assert page.value("rl_reward", run="a") is None
    assert not [key for key in page.samples if ("signal", "reward") in key[1]]


@pytest.mark.parametrize(
    ("log", "state"),
    [
        (HEALTHY, "finished"),
        (RESUMED, "finished"),
        (VERL / "sft.log", "finished"),
        (VERL / "failed.log", "failed"),
        (QUIET, "stopped"),
        (SICK, "stopped"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_each_log_ends_as_it_says(folder: Path, watched: Watching, log: Path, state: str) -> None:
    assert state_at_the_end(watched(), folder / "a.log", log.read_bytes()) == state


def test_the_reward_collapse_shows_in_the_statistics_and_the_healthy_run_shows_none(
    folder: Path, watched: Watching
) -> None:
    contents = {"sick": SICK.read_bytes(), "healthy": QUIET.read_bytes()}
    before = {name: content.partition(b"step:42 - ")[0] for name, content in contents.items()}
    found = one_more_step(watched(), folder, before, 42)

    assert stddevs_below_best(found, "sick") > 4
    assert stddevs_below_best(found, "healthy") < 2.5


def test_the_page_of_all_logs_parses_and_promtool_finds_nothing_wrong_with_it(
    folder: Path, watched: Watching
) -> None:
    for log in CONSOLES:
        (folder / log.name).write_bytes(log.read_bytes())
    pages = watched()
    pages.look()
    for log in folder.glob("*.log"):
        append(log, "\n", console(1000, measured(1000)))
    found = pages.look(1.0)

    assert found.runs() == {log.stem for log in CONSOLES}
    for tool in (prometheus("2.42"), prometheus("3.13")):
        done = subprocess.run(
            [tool.tool, "check", "metrics"], input=found.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), tool.version


@pytest.mark.parametrize(
    "log", sorted(LOGS.glob("*/*.log*")), ids=lambda log: f"{log.parent.name}/{log.stem}"
)
def test_a_log_is_not_a_metrics_page(log: Path) -> None:
    with suppress(ValueError):
        assert by_run(log.read_text(), "run") == {}

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

Watching = Callable[..., Watched]


def live(page: Watched, log: Path, step: int) -> Watched:
    """One more step, while the exporter is watching."""
    page.look()
    append(log, "\n", console(step, measured(step)))
    page.look(1.0)
    return page


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
    target, text = folder / "a.log", log.read_bytes()
    middle = text.rfind(b"\n", 0, len(text) // 2) + 1
    target.write_bytes(text[:middle])
    page = watched()
    assert page.look().state("a") == "running"
    with target.open("ab") as file:
        file.write(text[middle:])
    page.look(1.0)

    assert page.look(4 * 3600.0).state("a") == state


def test_the_reward_collapse_shows_in_the_statistics_and_the_healthy_run_shows_none(
    folder: Path, watched: Watching
) -> None:
    for name, log in (("sick", SICK), ("healthy", QUIET)):
        (folder / f"{name}.log").write_bytes(log.read_bytes().partition(b"step:42 - ")[0])
    page = watched()
    page.look()
    for name in ("sick", "healthy"):
        append(folder / f"{name}.log", "\n", console(42, {"perf/throughput": 1.0}))
    found = page.look(1.0)

    def stddevs_below_best(run: str) -> float:
        fallen = found.value("rl_drawdown_min_over_steps", run=run, signal="reward", steps="5") or 0.0
        return fallen / (found.value("rl_noise", run=run, signal="reward") or 1.0)

    assert stddevs_below_best("sick") > 4
    assert stddevs_below_best("healthy") < 2.5


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
def test_a_log_is_no_metrics_page(log: Path) -> None:
    with suppress(ValueError):
        assert by_run(log.read_text(), "run") == {}

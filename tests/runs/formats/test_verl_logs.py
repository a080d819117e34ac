"""Logs that verl wrote for us, from their bytes to the page."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.runs.pages.page import by_run
from tests.own_logs import CONSOLES, LOGS, QUIET, RESUMED
from tests.real import prometheus
from tests.runs.conftest import Watched, Watching
from tests.runs.lines import append, console, measured


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
    at_once = live(watched(), log, 120).look(60.0)
    log.write_bytes(b"")
    page = watched()
    page.look()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
        with log.open("ab") as file:
            file.write(text[start:end])
        page.look(3.0)

    assert live(page, log, 120).look(60.0).about_run("a") == at_once.about_run("a")


def test_validation_steps_ten_times_as_long_do_not_make_a_run_silent(folder: Path, watched: Watching) -> None:
    (folder / "a.log").write_bytes(RESUMED.read_bytes().partition(b"step:75 - ")[0])
    page = watched().look()
    typical = page.value("rl_step_interval_typical_seconds", run="a") or 0.0
    times = [
        float(time) for time in re.findall(rb"timing_s/step:(?:np\.\w+\()?([\d.]+)", RESUMED.read_bytes())
    ]

    assert median(times) <= typical < max(times) / 2
    assert 5 * typical > max(times)


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

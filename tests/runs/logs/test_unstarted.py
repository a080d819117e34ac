"""A log that grows without a step is reported, unless a run beside it makes steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.conftest import Watching
from tests.runs.lines import append, json_steps
from tests.runs.scrape import Scrape

WAITS = "stepwatch_log_without_step_timestamp_seconds"


def logs(found: Scrape) -> set[str]:
    return {dict(labels)["log"] for labels in found.all(WAITS)}


def test_a_log_that_grows_without_a_step_is_reported_from_when_it_appeared_until_its_first(
    folder: Path, watched: Watching
) -> None:
    append(folder / "ppo.log", "loading weights\n")
    page = watched()
    appeared = page.clock.wall
    assert logs(page.look()) == set()  # it may be an old one
    for _ in range(30):
        append(folder / "ppo.log", "loading weights\n")
        found = page.look(60.0)

    assert logs(found) == {"ppo.log"}
    assert found.value(WAITS) == appeared
    append(folder / "ppo.log", *json_steps(1, 1))
    assert logs(page.look(60.0)) == set()


def test_a_log_that_grows_no_more_is_left_alone_and_one_that_never_did_was(
    folder: Path, watched: Watching
) -> None:
    for name in ("ppo.log", "notes.txt"):
        append(folder / name, "loading weights\n")
    page = watched()
    page.look()
    append(folder / "ppo.log", "loading weights\n")

    assert logs(page.look(5.0)) == {"ppo.log"}
    assert logs(page.look(601.0)) == set()


@pytest.mark.parametrize("beside", ["ppo.err", "notes.txt"])
def test_standard_error_and_notes_beside_a_run_are_not_reported_however_slow_its_steps(
    folder: Path, watched: Watching, beside: str
) -> None:
    append(folder / "ppo.jsonl", *json_steps(1, 2))
    page = watched()
    page.look()
    for look in range(60):
        append(folder / beside, "a warning\n")
        if look == 40:
            append(folder / "ppo.jsonl", *json_steps(3, 3))
        assert logs(page.look(9.0)) == set()


def test_a_log_that_appeared_after_the_last_step_of_a_run_that_has_ended_is_reported(
    folder: Path, watched: Watching
) -> None:
    append(folder / "ppo.jsonl", *json_steps(1, 2))
    append(folder / "ppo.err", "a warning\n")
    page = watched()
    page.look()
    append(folder / "ppo.jsonl", *json_steps(3, 3))
    page.look(1.0)
    append(folder / "next.log", "loading weights\n")
    page.look(700.0)
    for name in ("next.log", "ppo.err"):
        append(folder / name, "loading weights\n")
    found = page.look(60.0)

    assert found.state("ppo") == "stopped"
    assert logs(found) == {"next.log"}


def test_of_many_logs_the_oldest_is_reported(folder: Path, watched: Watching) -> None:
    page = watched()
    for number in (2, 1, 3):
        append(folder / f"{number}.log", "loading weights\n")
        page.discover()
    for number in (1, 2, 3):
        append(folder / f"{number}.log", "loading weights\n")

    assert logs(page.look(60.0)) == {"2.log"}

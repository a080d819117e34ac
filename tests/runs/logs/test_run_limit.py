"""More runs and files than memory allows: live runs first, and what is left out is counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.runs.logs import watch
from exporter.runs.model import history
from exporter.runs.pages.source import PolledSource
from exporter.runs.signals.record import Ended, Event, Record
from tests.real.waiting import eventually
from tests.runs.conftest import Clock, Watched, Watching
from tests.runs.lines import append, console, measured, verl_json
from tests.runs.polled import FakeTarget
from tests.runs.scrape import Scrape


@pytest.fixture(name="page")
def _page(watched: Watching, tmp_path: Path) -> Watched:
    """A watch that takes three runs."""
    return watched(state_dir=tmp_path / "state", most_runs=3)


def step(page: Watched, number: int, *runs: str) -> None:
    """Have runs log a step, each with numbers of its own."""
    for run in runs:
        append(page.folder / f"{run}.log", console(number, measured(number, reward=ord(run) / 10)))


def end(page: Watched, run: str) -> None:
    append(page.folder / f"{run}.log", "Job 'raysubmit_x1' succeeded\n")


def left(found: Scrape, state: str = "running") -> float | None:
    return found.value("stepwatch_left_out_runs", state=state)


def test_a_live_run_that_is_watched_stays_however_many_begin_later(page: Watched) -> None:
    step(page, 1, *"abc")
    page.look()
    for number, run in enumerate("defg", 2):
        step(page, 1, run)
        step(page, number, "b", "c")  # a makes no step any more, and goes on being watched
        found = page.discover()
        assert found.runs() == {"a", "b", "c"}
    assert left(found) == 4


def test_live_runs_come_before_ended_ones_and_new_ones_before_old_ones(page: Watched, clock: Clock) -> None:
    step(page, 1, *"abc")
    page.look()
    step(page, 2, *"abc")
    for run, age in (("a", 50), ("b", 100)):
        end(page, run)
        page.look(1.0)
        os.utime(page.folder / f"{run}.log", (clock.wall - age, clock.wall - age))
    page.discover()
    step(page, 1, "d")
    found = page.discover()
    assert found.runs() >= {"c", "d"}
    assert (len(found.runs()), left(found), left(found, "ended")) == (3, 0, 1)
    step(page, 1, "e")
    found = page.discover()
    assert found.runs() == {"c", "d", "e"}
    assert (left(found), left(found, "ended")) == (0, 2)


def test_a_run_that_failed_is_watched_rather_than_one_that_finished(page: Watched) -> None:
    step(page, 1, *"abc")
    page.look()
    step(page, 2, *"abc")
    page.look(1.0)
    append(page.folder / "a.log", "Job 'raysubmit_x1' failed\n")
    page.look(1.0)
    end(page, "b")
    page.look(1.0)
    step(page, 1, "d")
    found = page.discover()
    assert found.runs() == {"a", "c", "d"}
    assert found.state("a") == "failed"


def test_a_run_that_was_left_out_is_let_in_when_another_ends_and_keeps_working(page: Watched) -> None:
    step(page, 1, *"abc")
    page.look()
    step(page, 1, "d")
    assert page.discover().runs() == {"a", "b", "c"}
    for number in range(2, 6):
        step(page, number, *"abcd")
    end(page, "b")
    page.look(1.0)
    page.look(1.0)
    found = page.discover()
    assert found.runs() == {"a", "c", "d"}
    assert found.value("rl_records_total", run="d") == 5
    assert left(found) == 0
    step(page, 6, *"acd")
    found = page.look(1.0)
    assert found.value("rl_step", run="d") == 6
    assert found.state("d") == "running"


def test_a_run_that_goes_on_after_it_was_left_out_as_ended_is_watched_again(page: Watched) -> None:
    step(page, 1, *"abc")
    page.look()
    end(page, "a")
    page.look(1.0)
    step(page, 1, "d")
    assert page.discover().runs() == {"b", "c", "d"}
    end(page, "b")
    page.look(1.0)
    step(page, 2, "a")
    page.discover()
    found = page.discover()
    assert found.runs() == {"a", "c", "d"}
    assert found.value("rl_step", run="a") == 2


def test_what_was_left_out_is_read_no_more_while_nothing_changes(page: Watched) -> None:
    step(page, 1, *"abcde")
    page.look()
    read = page.discover().value("stepwatch_bytes_read_total")
    for _ in range(5):
        found = page.discover()
    assert found.value("stepwatch_bytes_read_total") == read


def test_a_second_log_of_a_run_is_left_out_before_another_run(page: Watched) -> None:
    (page.folder / "one").mkdir()
    for number in range(1, 12):
        values = measured(number)
        append(page.folder / "one/train.log", console(number, values))
        append(page.folder / "one/train.jsonl", verl_json(number, values))
    step(page, 1, "b")
    assert len(page.look().runs()) == 2
    step(page, 1, "c")
    page.discover()
    found = page.discover()
    assert len(found.runs()) == 3
    assert {"b", "c"} < found.runs()


class Server(FakeTarget):
    """Hands over what a test logs to it, as a tracking server does."""

    name = source = "mlflow"
    has_history = True
    is_trainer = False

    def __init__(self) -> None:
        super().__init__()
        self._events: list[Event] = []

    def found(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def log(self, *events: Event) -> None:
        self._events = list(events)
        polls = self.polls
        eventually(lambda: self.polls > polls + 2)

    def step(self, number: int, *runs: str) -> None:
        self.log(*(Record(number, {"reward": ord(run) / 10}, run=run) for run in runs))


@pytest.fixture(name="server")
def _server() -> Server:
    return Server()


@pytest.fixture(name="both")
def _both(watched: Watching, server: Server) -> Iterator[Watched]:
    """A watch over a folder and a server that takes three runs."""
    page = watched(pages=(server,), poll=0.01, most_runs=3)
    page.watch.start()
    yield page
    for feed in page.watch.sources:
        if isinstance(feed, PolledSource):
            for polled in feed.pages.values():
                polled.stop()


def test_a_polled_run_takes_no_live_run_its_place_and_begins_when_there_is_room(
    both: Watched, server: Server
) -> None:
    step(both, 1, *"abc")
    both.look()
    server.step(1, "x")
    found = both.look()
    assert (found.runs(), left(found)) == ({"a", "b", "c"}, 1)
    end(both, "a")
    both.look(1.0)
    both.look(1.0)
    server.step(2, "x")
    found = both.look()
    assert (found.runs(), left(found), left(found, "ended")) == ({"b", "c", "x"}, 0, 1)


def test_a_polled_run_that_ended_makes_room_for_a_live_log(both: Watched, server: Server) -> None:
    server.step(1, *"xyz")
    server.log(Ended("finished", run="y"))
    both.look()
    step(both, 1, "a")
    found = both.discover()
    assert found.runs() == {"a", "x", "z"}
    assert (left(found), left(found, "ended")) == (0, 1)


def test_only_the_newest_files_without_a_record_are_read_and_the_others_are_counted(
    folder: Path, watched: Watching, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_FILES", 3)
    for number in range(10):
        path = folder / f"{number}.log"
        path.write_text("no step here\n")
        os.utime(path, (clock.wall - number, clock.wall - number))
    page = watched()
    found = page.look()
    assert found.value("stepwatch_files", kind="text") == 3
    assert found.value("stepwatch_files", kind="left_out") == 7
    append(folder / "9.log", console(1, measured(1)))
    assert page.discover().runs() == {"9"}


@pytest.mark.slow
def test_the_more_runs_there_are_the_coarser_are_their_curves(
    folder: Path, watched: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "ALL_STRETCHES", 3 * history.LEAST_STRETCHES)
    page = watched()
    for run in "abc":
        append(folder / f"{run}.jsonl", verl_json(1, measured(1, reward=ord(run))))
    page.look()
    for run in "abc":
        values = (measured(number, reward=ord(run) + number % 7) for number in range(2, 600))
        append(folder / f"{run}.jsonl", *(verl_json(number, each) for number, each in enumerate(values, 2)))
    page.look(1.0)
    with page.watch.views() as views:
        for view in views:
            curve = view.run.history.snapshot().curves["reward"]
            points = [point for piece in curve.pieces() for point in piece]
            assert 50 < len(points) <= 2 * history.LEAST_STRETCHES + 2

"""What is shown follows from what the sources saw, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.collector import Collector
from exporter.runs.remote.polled import Feed
from exporter.runs.serve.views import Selection, select
from exporter.runs.signals.record import Event, Record
from tests.real.waiting import eventually
from tests.runs.conftest import Clock, Watched
from tests.runs.lines import append, console, measured, verl_json
from tests.runs.logs.test_crashes import TOTAL, TRACEBACK
from tests.runs.polled import FakeTarget
from tests.runs.serve.test_duplicates import reported

DAY = 24 * 3600.0


class Server(FakeTarget):
    """A tracking server with one run."""

    name = "server"
    source = "mlflow"
    has_history = True
    is_trainer = False

    def found(self) -> list[Event]:
        return [Record(1, {"reward": 0.5}, run="sft")] if self.polls == 1 else []


@pytest.fixture(name="page")
def _page(folder: Path, watched: Callable[..., Watched]) -> Iterator[Watched]:
    """Two logs of one run, a log and a server with a run of one name, and a trainer that crashed later."""
    for step, values in reported(range(1, 40)):
        append(folder / "ppo.log", console(step, values))
        append(folder / "ppo.jsonl", verl_json(step, values))
    append(folder / "sft.log", console(1, measured(1)))
    page = watched(targets=(Server(),), poll_targets=0.01)
    page.watch.start()
    eventually(lambda: len(page.look().runs()) == 3)
    append(folder / "crash.log", TOTAL)
    page.look(200.0)
    append(folder / "crash.log", TRACEBACK)
    page.look(6.0)
    yield page
    for source in page.watch.sources:
        if isinstance(source, Feed):
            source.poller.stop()


def selected(watch: Collector) -> Selection:
    sightings = [sighting for source in watch.sources for sighting in source.sightings]
    logs = {path: place for source in watch.sources for path, place in source.named_by_path.items()}
    return select(sightings, logs, watch._duplicates.first, watch._gpus)


def known(watch: Collector) -> object:
    """What the collector remembers of its sources and their runs."""
    logs = [(log.path, log.priority, log.writer, log.followed) for log in watch.logs]
    runs = [run for source in watch.sources for run_set in source.run_sets() for run in run_set.runs.values()]
    seen = [(source.dormant, [*source.sightings]) for source in watch.sources]
    return logs, [(run.serial, run.version, run.watched) for run in runs], seen, dict(watch._duplicates.first)


def test_selecting_again_shows_the_same_and_changes_nothing(page: Watched, clock: Clock) -> None:
    page.look(100.0)
    shown = page.watch._shown
    before = known(page.watch)

    assert selected(page.watch) == shown
    clock.advance(DAY)  # after that the runs leave, but not by being selected
    assert selected(page.watch) == shown
    assert known(page.watch) == before
    assert {view.name for view in shown.views.values()} == {
        "ppo",
        "sft",
        "sft (/polled/mlflow/server sft)",
        "crash",
    }
    assert shown.duplicate_runs == 1

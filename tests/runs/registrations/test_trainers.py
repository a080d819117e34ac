"""Pages of trainers that come and go, and whose runs they tell of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import pytest

from exporter.runs.files.state_file import StateFolder
from exporter.runs.model import run_set
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import MOST_RUNS, RunLimit
from exporter.runs.model.run_source import Judge, Silence
from exporter.runs.remote.polled import AWAY_SECONDS, MOST_PAGES, Polling, RegisteredPages
from exporter.runs.remote.web import PollError
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Event, Record
from tests.real import eventually
from tests.runs.polled import FakeTarget

HOUR = 3600.0


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("exporter.runs.remote.polled.time", clock)
    return clock


class Page(FakeTarget):
    """Serves what a test sets, as a trainer's page does."""

    source = "rl_insight"

    def __init__(self, address: str) -> None:
        super().__init__()
        self.name = f"http://{address}/metrics"
        self.away = False
        self.events: list[Event] = []

    def tells(self, run: str, *steps: int) -> None:
        """Of this run and no other from now on."""
        self.reported = frozenset({run})
        self.events += [Record(step, {"critic/score/mean": step / 10}, run=run) for step in steps]

    def found(self) -> list[Event]:
        if self.away:
            raise PollError(f"{self.name} gives no answer.")
        events, self.events = self.events, []
        return events


class Cluster:
    """Pages by address, and what the exporter makes of them."""

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        self.clock = clock
        self.pages: dict[str, Page] = {}
        self.registered: tuple[str, ...] = ()
        polling = Polling(
            0.01, Options(), StateFolder(folder), Lock(), RunLimit(MOST_RUNS), Health(), 12 * HOUR
        )
        self.registry = RegisteredPages(lambda: self.registered, self.pages.__getitem__, polling)

    def has(self, *addresses: str) -> list[Page]:
        """These pages are registered, and no others."""
        for address in addresses:
            self.pages.setdefault(address, Page(address))
        self.registered = addresses
        self.registry.look()
        return [self.pages[address] for address in addresses]

    def read(self) -> None:
        """Wait until all that the pages tell is taken in."""
        for page in [self.pages[address] for address in self.registered]:
            if page.away:
                continue
            eventually(lambda page=page: not page.events)  # type: ignore[misc]
            seen = page.polls
            eventually(lambda page=page, seen=seen: page.polls > seen + 1)  # type: ignore[misc]

    def states(self) -> dict[str, str]:
        judge, now = Judge(Silence(), 12 * HOUR), self.clock.monotonic()
        runs = self.registry.run_set.runs.items()
        return {name: judge.state(run, self.registry.signs(name, run, now)) for name, run in runs}

    def steps(self) -> dict[str, int]:
        return {name: run.progress.step for name, run in self.registry.run_set.runs.items()}


@pytest.fixture(name="cluster")
def _cluster(clock: Clock) -> Iterator[Cluster]:
    cluster = Cluster(clock)
    yield cluster
    cluster.has()


def test_a_page_that_is_gone_stops_its_run_whether_or_not_it_is_still_registered(
    cluster: Cluster, clock: Clock
) -> None:
    gone, dropped = cluster.has("10.0.0.7:9092", "10.0.0.8:9092")
    gone.tells("maths/ppo", 1)
    dropped.tells("maths/sft", 1)
    cluster.read()
    gone.away = True
    cluster.has("10.0.0.7:9092")
    assert cluster.states() == {"maths/ppo": "running", "maths/sft": "running"}
    clock.ahead += AWAY_SECONDS + 1

    eventually(lambda: cluster.states() == {"maths/ppo": "stopped", "maths/sft": "stopped"})


def test_a_run_that_goes_on_at_another_address_is_the_same_run(cluster: Cluster, clock: Clock) -> None:
    (first,) = cluster.has("10.0.0.7:9092")
    first.tells("maths/ppo", *range(1, 9))
    cluster.read()
    first.away = True
    clock.ahead += AWAY_SECONDS + 1
    _, second = cluster.has("10.0.0.7:9092", "10.0.0.8:9092")
    cluster.read()
    second.tells("maths/ppo", 6, 7, 8, 9)
    cluster.read()

    assert cluster.steps() == {"maths/ppo": 9}
    assert cluster.states() == {"maths/ppo": "running"}
    assert cluster.registry.run_set.runs["maths/ppo"].resumes == 1
    assert cluster.registry.run_set.runs["maths/ppo"].records == 9


def test_two_runs_of_one_name_at_once_are_distinguished(cluster: Cluster) -> None:
    first, second = cluster.has("10.0.0.7:9092", "10.0.0.8:9092")
    first.tells("maths/ppo", 5)
    cluster.read()
    second.tells("maths/ppo", 1, 2)
    cluster.read()
    first.tells("maths/ppo", 6)
    cluster.read()

    assert cluster.steps() == {"maths/ppo": 6, "maths/ppo (10.0.0.8:9092)": 2}


def test_so_many_pages_are_polled_and_no_more_and_who_leaves_makes_room(cluster: Cluster) -> None:
    addresses = [f"10.0.0.{number}:9092" for number in range(MOST_PAGES + 3)]
    cluster.has(*addresses)
    assert cluster.registry.left_out == 3
    assert {poller.target.name for poller in cluster.registry.pollers()} == {
        f"http://{address}/metrics" for address in addresses[:MOST_PAGES]
    }
    cluster.has(*addresses[3:])

    assert cluster.registry.left_out == 0
    eventually(lambda: cluster.pages[addresses[-1]].polls > 0)


def test_a_run_that_no_one_reports_is_forgotten_after_its_time(cluster: Cluster, clock: Clock) -> None:
    old, young = cluster.has("10.0.0.7:9092", "10.0.0.8:9092")
    old.tells("maths/ppo", 1)
    young.tells("maths/sft", 1)
    cluster.read()
    cluster.has("10.0.0.8:9092")
    clock.ahead += 13 * HOUR
    cluster.read()
    cluster.has("10.0.0.8:9092")

    assert cluster.steps() == {"maths/sft": 1}


@pytest.mark.slow
def test_names_that_change_forever_fill_no_memory(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_set, "MOST_OF_LOG", 3)
    (page,) = cluster.has("10.0.0.7:9092")
    for number in range(8):
        page.tells(f"maths/{number}", 1)
        cluster.read()
    trainers = cluster.registry
    first = {"maths/0", "maths/1", "maths/2"}

    assert trainers.run_set.runs.keys() == trainers._owners.keys() == trainers._reported.keys() == first
    clock.ahead += 13 * HOUR
    cluster.has("10.0.0.7:9092")
    assert trainers.run_set.runs == trainers._owners == trainers._reported == {}


def test_a_page_s_run_is_known_by_the_name_that_it_is_shown_with(cluster: Cluster) -> None:
    one, two = cluster.has("10.0.0.7:9092", "10.0.0.8:9092")
    one.tells("maths/ppo", 1)
    two.tells("maths/sft", 1)
    cluster.read()
    runs = cluster.registry.run_set.runs
    shown = View("console", runs["maths/sft"], "running", None, duplicates=(runs["maths/ppo"],))

    assert {address: view.name for address, view in cluster.registry.shown([shown]).items()} == {
        "10.0.0.7:9092": "console",
        "10.0.0.8:9092": "console",
    }


def test_a_page_that_gives_no_answer_is_logged_once(cluster: Cluster, logged: list[str]) -> None:
    (page,) = cluster.has("10.0.0.7:9092")
    page.away = True
    eventually(lambda: page.polls > 3)

    assert logged == ["http://10.0.0.7:9092/metrics gives no answer."]

"""Runs that are polled: of a page or server, or of trainers' pages that come and go by registration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from threading import Lock
from typing import Protocol

from exporter.http.exposition import Metric, own
from exporter.runs.files.state import Saved, State
from exporter.runs.model.ends import Judge, Sighting, Signs, is_shown
from exporter.runs.model.exporter_health import Health, Polled
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import OF_STATE, PolledRunSet, Priority, RunLimit
from exporter.runs.pages.web import Poller, PollError
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Event

logger = logging.getLogger(__name__)
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0  # seconds between two attempts at a target that fails: twice as many each time
AWAY_SECONDS = 30.0  # a run must be missed that long for its trainer to have ended: networks fail for a while
MOST_PAGES = 32  # registered pages: each has a thread of its own, since a request may hang


class Target(Protocol):
    """What is polled. ``name`` is the user's word for it, ``source`` the label of its runs.

    ``has_history``: the first poll brings all that was ever logged. ``is_trainer``: it is the trainer
    itself that answers, so that its silence means something. ``reported``: the runs that a trainer's
    last answer reported. ``lacking``: why part of what was asked for is not in the last answer.
    """

    name: str
    source: str
    has_history: bool
    is_trainer: bool
    reported: frozenset[str]
    lacking: tuple[str, ...]

    def poll(self) -> list[Event]:
        """What is new since the last call that succeeded. Raises PollError."""


class Page(Poller):
    """A target that is polled in a thread of its own, so that a server that hangs holds up no other.

    ``take`` gets the events of each poll that succeeds, in that thread. ``problem`` says why the last attempt
    failed, ``answered`` is when one last succeeded, since the epoch, ``names`` are the runs that it reported
    then, as they are called here. ``answers`` and ``errors`` count both.
    """

    def __init__(
        self, key: str, target: Target, interval: float, take: Callable[[Page, list[Event]], None]
    ) -> None:
        super().__init__(f"poll {target.name}")
        self.key, self.target = key, target
        self.problem: str | None = None
        self.answered: float | None = None
        self.names: frozenset[str] = frozenset()
        self.answers = self.errors = 0
        self._interval, self._take, self._logged = interval, take, tuple[str, ...]()
        self._retry = self._first = min(FIRST_PAUSE, interval)

    def poll(self) -> float:
        """Poll once; returns the seconds until the next time."""
        fault: Exception | None = None
        try:
            events = self.target.poll()
            if not self.stopped:
                self._take(self, events)
                self.answered, self.answers = time.time(), self.answers + 1
                if self.problem is not None:
                    logger.info("%s answers again.", self.target.name)
                self.problem, self._retry = None, self._first
                self._log(self.target.lacking)
        except PollError as problem:
            self.problem = str(problem)
        except Exception as unforeseen:  # noqa: BLE001  (an answer that no one thought of must not end the polls)
            fault = unforeseen
            self.problem = f"{self.target.name}: {type(fault).__name__}, an internal error of Stepwatch"
        else:
            return self._interval
        self.errors += 1
        self._log((self.problem,), fault)
        pause, self._retry = self._retry, min(2 * self._retry, max(self._interval, LONGEST_PAUSE))
        return pause

    def _log(self, problems: tuple[str, ...], fault: Exception | None = None) -> None:
        """Log why the target gives no answer, or not all of it, once for each reason."""
        for problem in problems:
            if problem not in self._logged and not self.stopped:
                logger.warning("%s", problem, exc_info=fault)
        self._logged = problems


@dataclass(frozen=True, slots=True)
class Polling:
    """What polled sources share: ``interval`` and ``forget_after`` in seconds; events come under ``lock``."""

    interval: float
    options: Options
    states: State
    lock: Lock
    limit: RunLimit
    health: Health
    forget_after: float


class PolledSource:
    """Runs of polled ``targets`` of one ``kind``, which all have its ``source`` and so on.

    What the first answer holds is history, as the content of a log is. Of targets that have all of it, only
    the names of watched runs are stored. Of runs of one name in two pages the later one's has its address.
    """

    named_by_path: Mapping[Path, PurePath] = {}

    def __init__(
        self, name: str, kind: Target | type[Target], polling: Polling, targets: Sequence[Target] = ()
    ) -> None:
        self.name, self.place = name, Path("/polled", *dict.fromkeys((kind.source, name)))
        self.sightings: Sequence[Sighting] = ()
        self.dormant = 0
        self.pages = {target.name: self._page(target.name, target, polling) for target in targets}
        self._kind, self._polling, self._begun = kind, polling, time.monotonic()
        self._reported: dict[str, float] = {}
        """When a page last reported each run, in seconds of the steady clock."""
        self._owners: dict[str, str] = {}  # the page that reports each run
        saved = polling.states.load(self.place)
        before = saved.latest if saved and not kind.has_history else None
        watched, marks = (saved.watched, saved.marks) if saved else ((), None)
        self.run_set = PolledRunSet(
            polling.limit, kind.source, "", polling.options, before, watched, marks=marks
        )
        self.run_set.recall()
        self._saved = self._version()

    def _page(self, key: str, target: Target, polling: Polling) -> Page:
        return Page(key, target, polling.interval, self._take)

    def start(self) -> None:
        """Begin to poll."""
        for page in self.pages.values():
            page.start()

    def look(self) -> bool:
        """Return that there is nothing more to read at once: pages have threads of their own."""
        return False

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page ends with the trainer that serves it, a server outlives its runs."""
        quiet = self._quiet(run, now)
        if not self._kind.is_trainer:
            return Signs(quiet, None, None)
        answering = [page for page in self.pages.values() if page.problem is None]
        silent = now - self._reported[name] if name in self._reported else quiet
        there = silent < AWAY_SECONDS or any(name in page.names for page in answering)
        if name not in self._reported:
            there = there or any(page.answered is None for page in answering)  # that may report it
        return Signs(quiet, None if there else silent, there)

    def update(self, judge: Judge, now: float) -> None:
        """Judge all runs by now."""
        self.run_set.priorities.clear()
        self.dormant = 0
        found: list[Sighting] = []
        for key, run in self.run_set.runs.items():
            signs = self.signs(key, run, now)
            state = judge.state(run, signs)
            self.run_set.priorities[key] = OF_STATE.get(state, Priority.UNSHOWN)
            self.dormant += state == "dormant"
            if is_shown(state):
                at = self.place, key or self.name
                found.append(Sighting(at, PurePath(self.name), run, state, signs.writer))
        self.sightings = found

    def run_sets(self) -> Sequence[PolledRunSet]:
        """The one that all its runs are in."""
        return (self.run_set,)

    def report(self, health: Health, wall: float) -> None:
        """Add how the polls went, and the runs that were left out lately."""
        for page in self.pages.values():
            name, source, up = page.target.name, page.target.source, page.problem is None
            health.targets.append(Polled(name, source, up, page.errors, page.answered))
        for left in self.run_set.left_out.values():
            if wall - left.changed < self._polling.forget_after:
                now = left.now(left.changed, wall)
                health.leave_out(now.runs, live=now.priority is Priority.LIVE)

    def save(self) -> None:
        """Keep what the next start could not ask for, if it changed since the last time."""
        run_set = self.run_set
        with self._polling.lock:
            version = self._version()
            if version == self._saved:
                return
            saved = Saved(None, run_set.snapshot(), "", 0, run_set.watched(), marks=run_set.marks())
        self._polling.states.save(self.place, saved)
        self._saved = version

    def _version(self) -> tuple[object, ...]:
        return self.run_set.version(), *self.run_set.watched()

    def _missed(self, name: str, now: float) -> float:
        """Seconds since a page reported a run; since our start, if none has."""
        return now - self._reported.get(name, self._begun)

    def _quiet(self, run: Run, now: float) -> float:
        """Seconds since the run's last step, by the exporter's clock or the time that was logged."""
        if run.moved is not None:
            return now - run.moved
        last = run.times.last
        return now - self._begun if last is None else max(0.0, time.time() - last)

    def _take(self, page: Page, events: list[Event]) -> None:
        with self._polling.lock:
            wall, steady = time.time(), time.monotonic()
            # only a server knows the time of a late record
            late = max(0.0, wall - (page.answered or 0.0)) if self._kind.has_history else 0.0
            clock = Clock(wall, steady, live=page.answers > 0, late=late)
            names: dict[str, str] = {}
            for run in page.target.reported:
                others = self._owners.get(run, page.key) != page.key
                names[run] = (
                    f"{run} ({page.key})" if others and self._missed(run, steady) < AWAY_SECONDS else run
                )
            for event in events:
                name = names.get(event.run, event.run)
                self.run_set.take(event if name == event.run else replace(event, run=name), clock)
            page.names = frozenset(names.values())
            for each in self.run_set.runs.values():
                each.times.caught_up(wall)
            for run, name in names.items():
                if name in self.run_set.runs:  # no others: names may change at each poll for ever
                    self._reported[name] = steady
                    if run == name:
                        self._owners[run] = page.key


class RegisteredPages(PolledSource):
    """Trainers' pages at the ``addresses`` that are registered now; ``left_out`` counts surplus ones."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        make: Callable[[str], Target],
        kind: type[Target],
        polling: Polling,
    ) -> None:
        super().__init__(kind.source, kind, polling)
        self.left_out = 0
        self._addresses, self._make = addresses, make

    def look(self) -> bool:
        """Poll the registered pages from now on and no others; the first of them if they are too many."""
        addresses = self._addresses()
        wanted = addresses[:MOST_PAGES]
        self.left_out = len(addresses) - len(wanted)
        for address in self.pages.keys() - set(wanted):
            self.pages.pop(address).stop()
        for address in wanted:
            if address not in self.pages:
                self.pages[address] = self._page(address, self._make(address), self._polling)
                self.pages[address].start()
        now = time.monotonic()
        with self._polling.lock:
            for name, run in list(self.run_set.runs.items()):
                if min(self._missed(name, now), self._quiet(run, now)) > self._polling.forget_after:
                    del self.run_set.runs[name]
                    self._owners.pop(name, None)
                    self._reported.pop(name, None)
        return False

    def shown(self, views: Iterable[View]) -> dict[str, View]:
        """The run of each page, by its address, as it is shown; of pages that report one run only."""
        of_run = {run.serial: view for view in views for run in (view.run, *view.duplicates)}
        found: dict[str, View] = {}
        for address, page in self.pages.items():
            runs = [self.run_set.runs[name] for name in page.names if name in self.run_set.runs]
            if len(runs) == 1 and runs[0].serial in of_run:
                found[address] = of_run[runs[0].serial]
        return found

    def samples(self) -> Iterator[Metric]:
        """How many pages are left out."""
        text = "Registered pages of trainers that are not polled."
        yield own("registered_pages_left_out", text, self.left_out)

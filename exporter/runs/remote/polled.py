"""Runs that are polled: of one page or server, or of trainers' pages that come and go by registration."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from threading import Lock
from typing import Protocol

from exporter.http.exposition import Metric, own
from exporter.runs.files.state_file import Saved, StateFolder
from exporter.runs.model.exporter_health import Health, Polled
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import OF_STATE, PolledRunSet, Priority, RunLimit
from exporter.runs.model.run_source import Judge, Sighting, Signs, is_shown
from exporter.runs.remote.web import Poller, PollError
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Event

logger = logging.getLogger(__name__)
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0  # seconds between two attempts at a target that fails: twice as many each time


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


class TargetPoller(Poller):
    """Polls a target in a thread, so that a server that hangs holds up no other.

    ``problem`` says why the last attempt failed, ``answered`` is when one last succeeded, in seconds
    of the steady clock, ``answered_at`` the same since the epoch. ``answers`` and ``errors`` count both.

    ``take`` gets the events of each such poll, in that thread, until polling is stopped.
    """

    def __init__(self, target: Target, interval: float, take: Callable[[list[Event]], None]) -> None:
        super().__init__(f"poll {target.name}")
        self.target = target
        self.problem: str | None = None
        self.answered: float | None = None
        self.answered_at: float | None = None
        self.answers = self.errors = 0
        self._logged: tuple[str, ...] = ()
        self._interval = interval
        self._take = take
        self._pause = interval
        self._retry = self._first = min(FIRST_PAUSE, interval)

    def polled(self) -> Polled:
        """How the polls went so far."""
        target = self.target
        return Polled(target.name, target.source, self.problem is None, self.errors, self.answered_at)

    def poll(self) -> float:
        """Poll once; returns the seconds until the next time."""
        try:
            events = self.target.poll()
            if not self.stopped:
                self.answered, self.answered_at = time.monotonic(), time.time()
                self.answers += 1
                self._take(events)
                if self.problem is not None:
                    logger.info("%s answers again.", self.target.name)
                self.problem, self._pause, self._retry = None, self._interval, self._first
                self._log(self.target.lacking)
        except PollError as problem:
            self._failed(str(problem))
        except Exception as fault:  # noqa: BLE001  (an answer that no one thought of must not end the polls)
            self._failed(f"{self.target.name}: {type(fault).__name__}, an internal error of Stepwatch", fault)
        return self._pause

    def _failed(self, problem: str, fault: Exception | None = None) -> None:
        self.problem = problem
        self.errors += 1
        self._pause = self._retry
        self._retry = min(2 * self._retry, max(self._interval, LONGEST_PAUSE))
        self._log((problem,), fault)

    def _log(self, problems: tuple[str, ...], fault: Exception | None = None) -> None:
        """Log why the target gives no answer, or not all of it, once for each reason."""
        for problem in problems:
            if problem not in self._logged and not self.stopped:
                logger.warning("%s", problem, exc_info=fault)
        self._logged = problems


AWAY_SECONDS = 30.0  # A run must be missed that long for its trainer to have ended: networks fail for a while
MOST_PAGES = 32  # Registered pages: each has a thread of its own, since a request may hang


@dataclass(frozen=True, slots=True)
class Polling:
    """What polled sources share: ``interval`` and ``forget_after`` in seconds; events come under ``lock``."""

    interval: float
    options: Options
    states: StateFolder
    lock: Lock
    limit: RunLimit
    health: Health
    forget_after: float


class PolledSource(ABC):
    """Runs of polled targets; if it serves all ``from_start``, only watched names are stored."""

    named_by_path: Mapping[Path, PurePath] = {}

    def __init__(self, name: str, source: str, place: Path, polling: Polling, *, from_start: bool) -> None:
        self.name, self.place = name, place
        self.sightings: Sequence[Sighting] = ()
        self.dormant = 0
        self._polling = polling
        self._begun = time.monotonic()
        self._reported: dict[str, float] = {}
        """When a page last reported each run, in seconds of the steady clock."""
        saved = polling.states.load(place)
        before = saved.latest if saved and not from_start else None
        watched, marks = (saved.watched, saved.marks) if saved else ((), None)
        self.run_set = PolledRunSet(polling.limit, source, "", polling.options, before, watched, marks=marks)
        self.run_set.recall()
        self._saved = self._version()

    @abstractmethod
    def pollers(self) -> Sequence[TargetPoller]:
        """Those of its targets."""

    @abstractmethod
    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life of a run; ``now`` in seconds of the steady clock."""

    def look(self) -> bool:
        """Return that there is nothing more to read at once: pollers have threads of their own."""
        return False

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
        health.targets += [poller.polled() for poller in self.pollers()]
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
        try:
            self._polling.states.save(self.place, saved)
        except OSError:
            self._polling.health.state_errors += 1
            return
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

    def _signs(self, name: str, run: Run, now: float, *, reported: bool, pending: bool) -> Signs:
        """Signs of life of a run; ``pending``: a page that may report it has not answered yet."""
        quiet = self._quiet(run, now)
        silent = now - self._reported[name] if name in self._reported else quiet
        there = reported or silent < AWAY_SECONDS or (pending and name not in self._reported)
        return Signs(quiet, None if there else silent, there)


class Feed(PolledSource):
    """The runs of one page or server. What the first answer holds is history, as the content of a log is."""

    def __init__(self, target: Target, polling: Polling) -> None:
        place = Path("/polled") / target.source / target.name
        super().__init__(target.name, target.source, place, polling, from_start=target.has_history)
        self.target = target
        self.poller = TargetPoller(target, polling.interval, self._take)
        self._answered = 0.0

    def start(self) -> None:
        """Begin to poll."""
        self.poller.start()

    def pollers(self) -> Sequence[TargetPoller]:
        """The only one."""
        return (self.poller,)

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page ends with the trainer that serves it, a server outlives its runs."""
        if not self.target.is_trainer:
            return Signs(self._quiet(run, now), None, None)
        answers = self.poller.problem is None
        reported = answers and name in self.target.reported
        pending = answers and self.poller.answered is None
        return self._signs(name, run, now, reported=reported, pending=pending)

    def _take(self, events: list[Event]) -> None:
        with self._polling.lock:
            now = time.time()
            # Only a server knows the time of a late record.
            late = max(0.0, now - self._answered) if self.target.has_history else 0.0
            clock = Clock(now, time.monotonic(), live=self.poller.answers > 1, late=late)
            self._answered = now
            for event in events:
                self.run_set.take(event, clock)
            for run in self.run_set.runs.values():
                run.times.caught_up(clock.wall)
            # no others: names may change at each poll, and the run set takes only so many
            known = self.target.reported & self.run_set.runs.keys()
            self._reported.update(dict.fromkeys(known, clock.steady))


class _Page:
    """A registered page; ``names`` are the runs that it reports, as they are called here."""

    def __init__(
        self, address: str, target: Target, interval: float, take: Callable[[_Page, list[Event]], None]
    ) -> None:
        self.address, self.target = address, target
        self.names: frozenset[str] = frozenset()
        self.poller = TargetPoller(target, interval, lambda events: take(self, events))


class RegisteredPages(PolledSource):
    """One run set of all registered pages; of runs of one name the later one's has its address.

    ``left_out`` counts pages that are not polled, since there are too many.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[str]], make: Callable[[str], Target], polling: Polling
    ) -> None:
        source = "rl_insight"
        super().__init__(source, source, Path("/polled") / source, polling, from_start=False)
        self.left_out = 0
        self._addresses, self._make = addresses, make
        self._pages: dict[str, _Page] = {}
        self._owners: dict[str, str] = {}  # the address of the page that reports each run

    def start(self) -> None:
        """Pages are polled as soon as ``look`` finds them registered."""

    def look(self) -> bool:
        """Poll the registered pages from now on and no others; the first of them if they are too many."""
        addresses = self._addresses()
        wanted = addresses[:MOST_PAGES]
        self.left_out = len(addresses) - len(wanted)
        for address in self._pages.keys() - set(wanted):
            self._pages.pop(address).poller.stop()
        for address in wanted:
            if address not in self._pages:
                target, interval = self._make(address), self._polling.interval
                self._pages[address] = page = _Page(address, target, interval, self._take)
                page.poller.start()
        self._forget()
        return False

    def pollers(self) -> Sequence[TargetPoller]:
        """One for each page."""
        return [page.poller for page in self._pages.values()]

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page ends with the trainer that serves it."""
        answering = [page for page in self._pages.values() if page.poller.problem is None]
        reported = any(name in page.names for page in answering)
        pending = any(page.poller.answered is None for page in answering)
        return self._signs(name, run, now, reported=reported, pending=pending)

    def shown(self, views: Iterable[View]) -> dict[str, View]:
        """The run of each page, by its address, as it is shown; of pages that report one run only."""
        of_run = {run.serial: view for view in views for run in (view.run, *view.duplicates)}
        found: dict[str, View] = {}
        for page in self._pages.values():
            runs = [self.run_set.runs[name] for name in page.names if name in self.run_set.runs]
            if len(runs) == 1 and runs[0].serial in of_run:
                found[page.address] = of_run[runs[0].serial]
        return found

    def samples(self) -> Iterator[Metric]:
        """How many pages are left out."""
        text = "Registered pages of trainers that are not polled."
        yield own("registered_pages_left_out", text, self.left_out)

    def _forget(self) -> None:
        now = time.monotonic()
        with self._polling.lock:
            for name, run in list(self.run_set.runs.items()):
                if min(self._missed(name, now), self._quiet(run, now)) > self._polling.forget_after:
                    del self.run_set.runs[name]
                    self._owners.pop(name, None)
                    self._reported.pop(name, None)

    def _take(self, page: _Page, events: list[Event]) -> None:
        with self._polling.lock:
            clock = Clock(time.time(), time.monotonic(), live=page.poller.answers > 1)
            # with the page's address if another page reports a run with that name
            names = {
                run: f"{run} ({page.address})"
                if self._owners.get(run, page.address) != page.address
                and self._missed(run, clock.steady) < AWAY_SECONDS
                else run
                for run in page.target.reported
            }
            for event in events:
                self.run_set.take(replace(event, run=names.get(event.run, event.run)), clock)
            page.names = frozenset(names.values())
            for run, name in names.items():
                if name in self.run_set.runs:  # no others: names may change at each poll for ever
                    self.run_set.runs[name].times.caught_up(clock.wall)
                    self._reported[name] = clock.steady
                    if run == name:
                        self._owners[run] = page.address

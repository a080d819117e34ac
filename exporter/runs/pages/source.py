"""Runs that are polled: of a page or server of the settings, or of pages that register and leave."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath

from exporter.http.exposition import Metric, own
from exporter.runs.files.state import Saved, State
from exporter.runs.model.ends import Judge, Sighting, Signs, is_shown
from exporter.runs.model.exporter_health import Health, Polled
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import OF_STATE, PolledRunSet, Priority, RunLimit
from exporter.runs.pages.web import Poller, PollError
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Event
from exporter.secret_shapes import masked_url

logger = logging.getLogger(__name__)
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0  # seconds between two attempts at a target that fails: twice as many each time
AWAY_SECONDS = 30.0  # a run must be missed that long for its trainer to have ended: networks fail for a while
MOST_PAGES = 32  # registered pages: each has a thread of its own, since a request may hang


class Target(Poller):
    """A page or server, polled in a thread of its own, so that one that hangs holds up no other.

    ``has_history``: its first answer has all that was ever logged. ``is_trainer``: the trainer itself
    answers, so that its silence means something. ``reported`` are the runs of the last answer, ``names`` what
    they are called here; ``lacking``: why part of what was asked for is not in it. ``problem``: why the last
    attempt failed, ``errors`` counts these; ``answered``: when one last succeeded, since the epoch.
    """

    source: str
    has_history = False
    is_trainer = True

    def __init__(self, url: str) -> None:
        self.name = masked_url(url)
        super().__init__(f"poll {self.name}")
        self.reported = self.names = frozenset[str]()
        self.lacking: tuple[str, ...] = ()
        self.problem: str | None = None
        self.answered: float | None = None
        self.errors = 0
        self.take: Callable[[Target, list[Event]], None] = lambda *_: None
        self.interval, self._pause, self._logged = 0.0, 0.0, tuple[str, ...]()

    @abstractmethod
    def read(self) -> list[Event]:
        """Return what is new since the last call that succeeded. Raises PollError."""

    def poll(self) -> float:
        """Hand over what is new; returns the seconds until the next time."""
        fault: Exception | None = None
        try:
            events = self.read()
            if self.stopped:
                return 0.0
            self.take(self, events)
        except PollError as problem:
            words = str(problem)
        except Exception as unforeseen:  # noqa: BLE001  (an answer that no one thought of must not end the polls)
            fault, words = unforeseen, f"{type(unforeseen).__name__}, an internal error of Stepwatch"
            words = f"{self.name}: {words}"
        else:
            if self.problem is not None:
                logger.info("%s answers again.", self.name)
            self.answered, self.problem, self._pause = time.time(), None, 0.0
            self._log(self.lacking)
            return self.interval
        self.problem, self.errors = words, self.errors + 1
        self._log((words,), fault)
        longest = max(self.interval, LONGEST_PAUSE)
        self._pause = min(2 * self._pause or min(FIRST_PAUSE, self.interval), longest)
        return self._pause

    def _log(self, problems: tuple[str, ...], fault: Exception | None = None) -> None:
        """Log why there is no answer, or not all of it, once for each reason."""
        for problem in problems:
            if problem not in self._logged and not self.stopped:
                logger.warning("%s", problem, exc_info=fault)
        self._logged = problems


class PolledSource:
    """The runs of a ``target``, or of the pages that are ``registered`` now: their URLs by address.

    What the first answer has is history, as the content of a log is. Of a target that has all of it, only
    the names of watched runs are stored. Of runs of one name in two pages the later one's has its address.
    Events come under ``lock``; ``interval`` and ``forget_after`` are in seconds.
    """

    named_by_path: Mapping[Path, PurePath] = {}

    def __init__(
        self,
        target: Target | type[Target],
        registered: Callable[[], Mapping[str, str]] | None = None,
        *,
        interval: float,
        options: Options,
        states: State,
        lock: AbstractContextManager[object],
        limit: RunLimit,
        forget_after: float,
    ) -> None:
        self.pages: dict[str, Target] = {target.name: target} if isinstance(target, Target) else {}
        self.name = next(iter(self.pages), target.source)
        self.place = Path("/polled", *dict.fromkeys((target.source, self.name)))
        self.sightings: Sequence[Sighting] = ()
        self.dormant = self.left_out = 0
        self._kind, self._registered, self._interval = target, registered, interval
        self._states, self._lock, self._forget_after = states, lock, forget_after
        self._begun = time.monotonic()
        self._seen: dict[str, tuple[str, float]] = {}  # the page that reported a run last, and when
        saved = states.load(self.place)
        before = saved.latest if saved and not target.has_history else None
        watched, marks = (saved.watched, saved.marks) if saved else ((), None)
        self.run_set = PolledRunSet(limit, target.source, "", options, before, watched, marks=marks)
        self.run_set.recall()
        self._saved = self._version()

    def start(self) -> None:
        """Begin to poll what the settings name."""
        for key in self.pages:
            self._start(key)

    def _start(self, key: str) -> None:
        page = self.pages[key]
        page.interval, page.take = self._interval, partial(self._take, key)
        page.start()

    def look(self) -> bool:
        """Poll the pages that are registered now; nothing has to be read at once, as they have threads."""
        if self._registered is None:
            return False
        registered = self._registered()
        wanted = list(registered)[:MOST_PAGES]
        self.left_out = len(registered) - len(wanted)
        for address in self.pages.keys() - set(wanted):
            self.pages.pop(address).stop()
        for address in wanted:
            if address not in self.pages:
                self.pages[address] = self._kind(registered[address])  # type: ignore[operator]
                self._start(address)
        return False

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page ends with the trainer that serves it, a server outlives its runs."""
        quiet = self._quiet(run, now)
        if not self._kind.is_trainer:
            return Signs(quiet, None, None)
        answering = [page for page in self.pages.values() if page.problem is None]
        silent = self._missed(name, now) if name in self._seen else quiet
        there = silent < AWAY_SECONDS or any(name in page.names for page in answering)
        if name not in self._seen:
            there = there or any(page.answered is None for page in answering)  # that may report it
        return Signs(quiet, None if there else silent, there)

    def update(self, judge: Judge, now: float) -> None:
        """Judge all runs by now, and forget those that no registered page will report again."""
        self.run_set.priorities.clear()
        self.dormant = 0
        found: list[Sighting] = []
        for key, run in list(self.run_set.runs.items()):
            signs = self.signs(key, run, now)
            state = judge.state(run, signs)
            if state == "forgotten" and self._registered and self._missed(key, now) > self._forget_after:
                del self.run_set.runs[key]
                self._seen.pop(key, None)
            self.run_set.priorities[key] = OF_STATE.get(state, Priority.UNSHOWN)
            self.dormant += state == "dormant"
            if is_shown(state):
                at = self.place, key or self.name
                found.append(Sighting(at, PurePath(self.name), run, state, signs.writer))
        self.sightings = found

    def run_sets(self) -> Sequence[PolledRunSet]:
        """Return the one that all its runs are in."""
        return (self.run_set,)

    def report(self, health: Health, wall: float) -> None:
        """Add how the polls went, and the runs that were left out lately."""
        for page in self.pages.values():
            polled = Polled(page.name, page.source, page.problem is None, page.errors, page.answered)
            health.targets.append(polled)
        for left in self.run_set.left_out.values():
            if wall - left.changed < self._forget_after:
                now = left.now(left.changed, wall)
                health.leave_out(now.runs, live=now.priority is Priority.LIVE)

    def shown(self, views: Iterable[View]) -> dict[str, View]:
        """Return the run of each page as it is shown, by address; of pages that report one run only."""
        of_run = {run.serial: view for view in views for run in (view.run, *view.duplicates)}
        found: dict[str, View] = {}
        for address, page in self.pages.items():
            runs = [self.run_set.runs[name] for name in page.names if name in self.run_set.runs]
            if len(runs) == 1 and runs[0].serial in of_run:
                found[address] = of_run[runs[0].serial]
        return found

    def samples(self) -> Iterator[Metric]:
        """Yield how many pages are left out."""
        text = "Registered pages of trainers that are not polled."
        yield own("registered_pages_left_out", text, self.left_out)

    def save(self) -> None:
        """Keep what the next start could not ask for, if it changed since the last time."""
        run_set = self.run_set
        with self._lock:
            version = self._version()
            if version == self._saved:
                return
            saved = Saved(None, run_set.snapshot(), "", 0, run_set.watched(), marks=run_set.marks())
        self._states.save(self.place, saved)
        self._saved = version

    def _version(self) -> tuple[object, ...]:
        return self.run_set.version(), *self.run_set.watched()

    def _missed(self, name: str, now: float) -> float:
        """Return the seconds since a page reported a run; since our start, if none has."""
        return now - self._seen.get(name, ("", self._begun))[1]

    def _quiet(self, run: Run, now: float) -> float:
        """Return the seconds since the run's last step, by our clock or the time that was logged."""
        if run.moved is not None:
            return now - run.moved
        last = run.times.last
        return now - self._begun if last is None else max(0.0, time.time() - last)

    def _take(self, key: str, page: Target, events: list[Event]) -> None:
        with self._lock:
            wall, steady = time.time(), time.monotonic()
            # only a server knows the time of a late record
            late = max(0.0, wall - (page.answered or 0.0)) if page.has_history else 0.0
            clock = Clock(wall, steady, live=page.answered is not None, late=late)
            names: dict[str, str] = {}
            for run in page.reported:
                others = self._seen.get(run, (key,))[0] != key and self._missed(run, steady) < AWAY_SECONDS
                names[run] = f"{run} ({key})" if others else run
            for event in events:
                name = names.get(event.run, event.run)
                self.run_set.take(event if name == event.run else replace(event, run=name), clock)
            page.names = frozenset(names.values())
            for each in self.run_set.runs.values():
                each.times.caught_up(wall)
            for name in page.names & self.run_set.runs.keys():  # no others: names may change at each poll
                self._seen[name] = key, steady

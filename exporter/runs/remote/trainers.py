"""Runs of trainers whose pages come and go by registration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from exporter.http.exposition import Family, Sample
from exporter.runs.files.state_file import StateFolder
from exporter.runs.logs.run_limit import RunLimit
from exporter.runs.model.health import Health, Polled
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.remote import Target
from exporter.runs.remote.poller import Poller
from exporter.runs.remote.presence import AWAY_SECONDS, Presence
from exporter.runs.remote.remembered import Remembered
from exporter.runs.signals.record import Event
from exporter.runs.visible.views import Signs, View

MOST_PAGES = 32
"""Each has a thread of its own, since a request may hang."""


class _Page:
    """A page that is polled; ``names`` are the runs that it reports, as they are called here."""

    def __init__(
        self, address: str, target: Target, interval: float, take: Callable[[_Page, list[Event]], None]
    ) -> None:
        self.address, self.target = address, target
        self.names: frozenset[str] = frozenset()
        self.poller = Poller(target, interval, lambda events: take(self, events))


class Trainers:
    """One roster for all pages: a run that goes on at another address is the same run.

    While two pages at once report runs with one name, the later one's has its address behind the
    name. ``heed`` says which pages there are, again and again. A run that no page reported for
    ``forget_after`` seconds is forgotten. ``left_out`` counts pages that are not polled, since there
    are too many.
    """

    name = "rl_insight"
    place = Path("/polled/rl_insight")

    def __init__(
        self,
        interval: float,
        options: Options,
        states: StateFolder,
        lock: Lock,
        *,
        limit: RunLimit,
        forget_after: float,
        make: Callable[[str], Target],
    ) -> None:
        self.left_out = 0
        self._interval, self._lock, self._forget_after, self._make = interval, lock, forget_after, make
        self._pages: dict[str, _Page] = {}
        self._owners: dict[str, str] = {}
        """The address of the page that reports each run."""
        self._presence = Presence()
        self._remembered = Remembered(self.place, self.name, options, states, limit, anew=False)
        self.roster = self._remembered.roster

    def start(self) -> None:
        """Pages are polled as soon as ``heed`` names them."""

    def heed(self, addresses: Sequence[str]) -> None:
        """Poll these pages from now on and no others; the first of them if they are too many."""
        wanted = addresses[:MOST_PAGES]
        self.left_out = len(addresses) - len(wanted)
        for address in self._pages.keys() - set(wanted):
            self._pages.pop(address).poller.stop()
        for address in wanted:
            if address not in self._pages:
                self._pages[address] = page = _Page(address, self._make(address), self._interval, self._take)
                page.poller.start()
        self._forget()

    def shown(self, views: Iterable[View]) -> dict[str, View]:
        """The run of each page, by its address, as it is shown; of pages that report one run only."""
        of_run = {run.serial: view for view in views for run in (view.run, *view.twins)}
        found = {page.address: self._only(page) for page in self._pages.values()}
        return {address: of_run[run.serial] for address, run in found.items() if run and run.serial in of_run}

    def _only(self, page: _Page) -> Run | None:
        runs = [self.roster.runs[name] for name in page.names if name in self.roster.runs]
        return runs[0] if len(runs) == 1 else None

    def _forget(self) -> None:
        now = time.monotonic()
        with self._lock:
            for name, run in list(self.roster.runs.items()):
                silent = min(self._presence.missed(name, now), self._presence.quiet(run, now))
                if silent > self._forget_after:
                    del self.roster.runs[name]
                    self._owners.pop(name, None)
                    self._presence.forget(name)

    def _take(self, page: _Page, events: list[Event]) -> None:
        with self._lock:
            clock = Clock(time.time(), time.monotonic(), live=page.poller.answers > 1)
            names = {run: self._called(run, page.address, clock.steady) for run in page.target.telling}
            for event in events:
                self.roster.take(replace(event, run=names.get(event.run, event.run)), clock)
            page.names = frozenset(names.values())
            self._note({run: name for run, name in names.items() if name in self.roster.runs}, page, clock)

    def _called(self, run: str, address: str, now: float) -> str:
        """The run's name; with the page's address if another page reports a run with that name."""
        owner = self._owners.get(run, address)
        if owner != address and self._presence.missed(run, now) < AWAY_SECONDS:
            return f"{run} ({address})"
        return run

    def _note(self, names: Mapping[str, str], page: _Page, clock: Clock) -> None:
        """The page reports these runs; of no others, since names may change at each poll for ever."""
        for run, name in names.items():
            self.roster.runs[name].times.caught_up(clock.wall)
            if run == name:
                self._owners[run] = page.address
        self._presence.reported(names.values(), clock.steady)

    def signs(self, name: str, run: Run, now: float) -> Signs:
        """Signs of life: a page goes with the trainer that serves it."""
        answering = [page for page in self._pages.values() if page.poller.problem is None]
        telling = any(name in page.names for page in answering)
        pending = any(page.poller.answered is None for page in answering)
        return self._presence.signs(name, run, now, telling=telling, pending=pending)

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """How many pages are left out."""
        text = "Registered pages of trainers that are not polled."
        yield Family("stepwatch_registered_pages_left_out", "gauge", text), [({}, self.left_out)]

    def polled(self) -> list[Polled]:
        return [page.poller.polled() for page in self._pages.values()]

    def save(self, health: Health) -> None:
        self._remembered.save(health, self._lock)

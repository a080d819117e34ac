"""Watch everything that trainers write: read what is new, and keep the state of each run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from exporter.runs.files.mounts import HungError, Mount, Mounts
from exporter.runs.files.state_file import StateFolder
from exporter.runs.logs.collection import Logs
from exporter.runs.logs.log import Log
from exporter.runs.logs.unstarted import GROWING_SECONDS, unstarted
from exporter.runs.logs.writers import Writers
from exporter.runs.model.health import Health
from exporter.runs.model.lifecycle import Silence
from exporter.runs.model.run import Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.remote import Target
from exporter.runs.remote.feed import Feed
from exporter.runs.remote.monitor_page import MonitorPage
from exporter.runs.remote.trainers import Trainers
from exporter.runs.serve.endpoints import UnknownRunError
from exporter.runs.serve.metrics import RunText, page
from exporter.runs.visible.duplicates import Place
from exporter.runs.visible.gpu_processes import GPUProcesses, RunGPUs
from exporter.runs.visible.polling import Polling
from exporter.runs.visible.select import Selection
from exporter.runs.visible.unmapped import Unmapped
from exporter.runs.visible.views import Judge, View

Listener = Callable[[Iterable[View], Iterable[Log]], None]
"""Gets the runs that are shown and all logs, after each look, while the lock is held."""

HOLDERS_SECONDS = 1.0
GPUS_SECONDS = 15.0
"""The GPU exporter asks the driver for processes as often."""
SAVE_SECONDS = 10.0
CLOCK_SECONDS = 5.0
"""A clock that is set by less than that, little by little, matters to nothing."""
WRITER_SECONDS = 24 * 3600.0
"""The writer of a log that has been silent for that long is not searched for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is watched, and how. All durations in seconds.

    ``targets`` are polled every ``poll_targets``, and so are the pages at the addresses that ``trainers``
    gives, which may be others at each call; ``reached`` says what to write for an address. Logs are
    looked at every ``poll``.
    """

    paths: tuple[str, ...]
    state_folder: Path | None = None
    forget_after: float = 12 * 3600.0
    silence: Silence = field(default_factory=Silence)
    options: Options = field(default_factory=Options)
    targets: tuple[Target, ...] = ()
    trainers: Callable[[], Sequence[str]] = tuple
    reached: Callable[[str], str] = str
    poll: float = 0.5
    poll_targets: float = 5.0


class Collector:
    """All runs. ``look`` is called again and again; ``metrics`` from any thread.

    A look that is under way reads no further once ``stopped`` says true. ``listeners`` are called after
    each. ``caught_up``: all that was there at the start has been read. ``own`` are the mounts of Stepwatch's
    own files, ``hangable`` what else may hang without the logs.
    """

    def __init__(
        self,
        settings: Settings,
        holders: Writers | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings
        self.health = Health()
        self.listeners: list[Listener] = []
        self.caught_up = False
        self.holders = holders or Writers()
        self._gpu_processes = GPUProcesses(self.holders.proc)
        self._gpus: dict[Place, RunGPUs] = {}
        self._lock = Lock()
        self.own = Mounts()
        self.hangable: list[Mount] = []
        states, options = StateFolder(settings.state_folder, self.own), settings.options
        self.logs = Logs(
            settings.paths,
            states,
            self.health,
            options,
            mounts=Mounts(),
            forget_after=settings.forget_after,
            time=time,
            stopped=stopped,
        )
        every, lock = settings.poll_targets, self._lock
        self.trainers = Trainers(
            every,
            options,
            states,
            lock,
            limit=self.logs.limit,
            forget_after=settings.forget_after,
            make=lambda address: MonitorPage(settings.reached(address)),
        )
        self.feeds: list[Polling] = [
            *(
                Feed(target, every, options, states, lock, limit=self.logs.limit)
                for target in settings.targets
            ),
            self.trainers,
        ]
        self._named = frozenset(urlsplit(target.name).netloc for target in settings.targets)
        judge = Judge(settings.silence, settings.forget_after)
        self._shown = Selection(self.logs, self.feeds, self.holders, judge, time)
        self._texts: dict[Place, RunText] = {}
        self._views: dict[Place, View] = {}
        self._hints = Unmapped()
        self._due: dict[str, float] = {}
        self._epoch = time.time() - time.monotonic()

    def start(self) -> None:
        """Begin to poll targets, in the background."""
        for feed in self.feeds:
            feed.start()

    def look(self) -> bool:
        """Find new logs, read what was appended, and look at the writers.

        Returns true if there is more to read at once.
        """
        started = time.monotonic()
        self.trainers.heed([address for address in self.settings.trainers() if not self._is_named(address)])
        self._heed_clock()
        for log in self.logs.look(self._lock):
            self.holders.forget(log.file)
        if self._is_due("holders", HOLDERS_SECONDS):
            self._look_at_writers()
        if self._is_due("gpus", GPUS_SECONDS):
            self._gpus = self._gpu_processes.look(self._writers())
        with self._lock:
            self._views = self._shown.now()
            for at in self._gpus.keys() & self._views.keys():
                self._views[at] = self._views[at]._replace(gpus=self._gpus[at])
            for listener in self.listeners:
                listener(self._views.values(), self.logs)
        self._hints.log(self._views.values())
        with self._lock:
            rosters = self._rosters()
            self._note_health(rosters)
            self.settings.options.detail.heed(sum(len(roster.runs) for roster in rosters))
        if self._is_due("save", SAVE_SECONDS) or any(log.must_be_saved for log in self.logs):
            self.save()
        self.health.poll_seconds = time.monotonic() - started
        self.health.polled = time.time()
        more = any(log.more for log in self.logs) or self.logs.waits
        self.caught_up = self.caught_up or not more
        return more

    def _is_named(self, address: str) -> bool:
        """Is it a page that the settings name, and so polled anyway?"""
        return self.settings.reached(address) in self._named

    def metrics(self) -> bytes:
        """The exposition page."""
        now = time.monotonic()
        with self._lock:
            self._texts = {place: self._texts.get(place) or RunText() for place in self._views}
            views = zip(self._texts.values(), self._views.values(), strict=True)
            return page([text.chunks(view, now) for text, view in views], self.health.samples())

    @contextmanager
    def views(self) -> Iterator[Collection[View]]:
        """The runs that are shown; nothing of them changes while they are looked at."""
        with self._lock:
            yield self._views.values()

    def mark(self, name: str, note: str) -> None:
        """Have a run measured anew from its next step on.

        Raises:
            UnknownRunError: no run of that name is shown.
        """
        with self._lock:
            views = {view.name: view for view in self._views.values()}
            if name not in views:
                raise UnknownRunError(name, views)
            for run in (views[name].run, *views[name].twins):
                run.mark(time.time(), note)
        self._due["save"] = 0.0  # with the next look, not only some time later

    def save(self) -> None:
        """Write the state files of all runs that changed."""
        try:
            for log in self.logs:
                log.save()
            for feed in self.feeds:
                feed.save(self.health)
        except HungError:  # what was not saved is saved the next time
            return

    def _is_due(self, what: str, seconds: float) -> bool:
        """Is it time to do this again?"""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _look_at_writers(self) -> None:
        live = [log for log in self.logs if self._may_be_held(log)]
        for log in live:
            if not self.holders.knows(log.file):
                self.holders.remember(log.file, time.monotonic(), writer=log.writer)
        now = time.monotonic()
        self.logs.on_mounts(live, lambda logs: self.holders.look([log.file for log in logs], now))

    def _writers(self) -> dict[Place, frozenset[str]]:
        """The writers of each run that is running, of a log: that of a page or server may be anywhere."""
        logs = self.logs.by_path
        going = ((at, view) for at, view in self._views.items() if view.state == "running" and at[0] in logs)
        return {at: view.writers for at, view in going}

    def _may_be_held(self, log: Log) -> bool:
        """Is its writer worth a look? A run folder may hold thousands of old texts."""
        if log.kind == "empty":  # a trainer may fail right behind its first words
            return time.time() - log.changed < GROWING_SECONDS
        quiet = self.logs.quiet(log)
        if log.is_text:
            return bool(log.writer) or quiet < GROWING_SECONDS
        return log.roster is not None and quiet < WRITER_SECONDS

    def _heed_clock(self) -> None:
        """Have no run look silent for the time that the machine slept, or by which its clock was set."""
        epoch = time.time() - time.monotonic()
        jump, self._epoch = epoch - self._epoch, epoch
        if abs(jump) > CLOCK_SECONDS:
            with self._lock:
                for run in (run for roster in self._rosters() for run in roster.runs.values()):
                    run.times.shift(jump)

    def _rosters(self) -> list[RunSet]:
        return [log.roster for log in self.logs if log.roster] + [feed.roster for feed in self.feeds]

    def _note_health(self, rosters: Sequence[RunSet]) -> None:
        health, shown = self.health, self._shown
        health.collisions, health.dormant, health.twins = shown.collisions, shown.dormant, shown.twins
        health.unjudged = self._hints.unjudged
        health.files = self.logs.kinds()
        health.left_out = Counter()
        for left in self.logs.over:
            health.left_out["running" if left.is_live else "ended"] += left.runs
        health.refused = sum(roster.refused for roster in rosters)
        health.unstarted = self._unstarted(run for roster in rosters for run in roster.runs.values())
        now = time.time()
        hung = (*self.own.hung, *(mount for mount in self.hangable if mount.hangs), *self.logs.hung)
        health.hung = {mount.point: now - mount.silent for mount in hung}
        health.unread_bytes = sum(log.unread for log in self.logs)
        health.runs = Counter(view.state for view in self._views.values())
        health.targets = [polled for feed in self.feeds for polled in feed.polled()]

    def _unstarted(self, runs: Iterable[Run]) -> Mapping[str, float]:
        """A run that is running explains the logs beside it, however long its steps take."""
        going = (view.run for view in self._views.values() if view.state == "running")
        if any(run.progress.first is not None for run in going):
            return {}
        return unstarted(self.logs, runs, time.monotonic())

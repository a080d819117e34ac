"""Watch everything that trainers write: read what is new, and keep the state of each run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from urllib.parse import urlsplit

from exporter.runs.cli import Settings
from exporter.runs.files.mounts import Mount
from exporter.runs.files.state import State
from exporter.runs.logs.log import Log
from exporter.runs.logs.processes import GPUProcesses, RunGPUs, Writers
from exporter.runs.logs.watch import Logs
from exporter.runs.model.ends import Judge, Place, Silence
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options, Recorder
from exporter.runs.model.run_set import MOST_RUNS, RunLimit, RunSet
from exporter.runs.model.same import Duplicates
from exporter.runs.pages.page import MonitorPage
from exporter.runs.pages.source import PolledSource
from exporter.runs.serve.endpoints import UnknownRunError
from exporter.runs.serve.metrics import RunText, page
from exporter.runs.serve.views import Selection, View, select
from exporter.runs.signals.unmapped import RawRule
from exporter.runs.targets.target import AddressMap

Listener = Callable[[Iterable[View], Iterable[Log]], None]
"""Gets the runs that are shown and all logs, after each look, while the lock is held."""
GPUS_SECONDS = 15.0  # the GPU exporter asks the driver for processes as often
SAVE_SECONDS = 10.0
CLOCK_SECONDS = 5.0  # A clock that is set by less than that, little by little, matters to nothing


class Collector:
    """All runs. ``look`` is called again and again, ``metrics`` from any thread.

    A look that is under way reads no further once ``stopped`` says true. ``listeners`` are called after
    each. ``caught_up``: all that was there at the start has been read. ``hangable`` is what else may hang
    without the logs, ``addresses`` gives those of the pages that are registered at the time. ``recorder``
    gets each record; of more than ``most_runs`` the oldest are left out.
    """

    def __init__(
        self,
        settings: Settings,
        writers: Writers | None = None,
        stopped: Callable[[], bool] = lambda: False,
        *,
        recorder: Recorder | None = None,
        most_runs: int = MOST_RUNS,
    ) -> None:
        self.settings = settings
        raw = RawRule(settings.raw_allow, settings.raw_limit)
        self._options = Options(settings.hold, settings.signals, raw, settings.own, recorder=recorder)
        self.health = Health()
        self.listeners: list[Listener] = []
        self.caught_up = False
        self.writers = writers or Writers()
        self.hangable: list[Mount] = []
        self.addresses: Callable[[], Sequence[str]] = tuple
        self._lock = RLock()  # the metrics of a part may be about the runs
        self._limit = RunLimit(most_runs)
        self.states = states = State(settings.state_dir)
        forget_after = settings.forget_after
        self.logs = Logs(
            settings.path,
            states,
            self.health,
            self._options,
            writers=self.writers,
            limit=self._limit,
            lock=self._lock,
            forget_after=forget_after,
            time=time,
            stopped=stopped,
        )
        polled = partial(
            PolledSource,
            interval=settings.poll,
            options=self._options,
            states=states,
            lock=self._lock,
            limit=self._limit,
            forget_after=forget_after,
        )
        feeds = [polled(target) for target in (*settings.pages, *settings.mlflow)]
        self.registered = polled(MonitorPage, self._registered_pages)
        self.sources: Sequence[Logs | PolledSource] = (self.logs, *feeds, self.registered)
        self._judge = Judge(Silence(settings.silence, settings.silence_intervals), forget_after)
        self._duplicates = Duplicates()
        self._gpu_processes = GPUProcesses(self.writers.proc)
        self._gpus: Mapping[Place, RunGPUs] = {}
        self._shown = Selection()
        self._texts: dict[Place, RunText] = {}
        self._due: dict[str, float] = {}
        self._epoch = time.time() - time.monotonic()

    def _registered_pages(self) -> dict[str, str]:
        """The URLs of registered pages by address; those that the settings name are polled anyway."""
        host = AddressMap(self.settings.loopback)
        reached = {address: host.of_prometheus(address) for address in self.addresses()}
        named = {urlsplit(target.name).netloc for target in (*self.settings.pages, *self.settings.mlflow)}
        return {address: f"http://{at}/metrics" for address, at in reached.items() if at not in named}

    def start(self) -> None:
        """Begin to poll targets, in the background."""
        for source in self.sources:
            source.start()

    def look(self) -> bool:
        """Read what is new, and select what is shown of it; true if there is more to read at once."""
        started = time.monotonic()
        self._follow_clock()
        more = False
        for source in self.sources:
            more |= source.look()
        if self._is_due("gpus", GPUS_SECONDS):
            # only of logs: the writer of a page or server may be anywhere
            running = {
                at: view.writers
                for at, view in self._shown.views.items()
                if view.state == "running" and at[0] in self.logs.by_path
            }
            self._gpus = self._gpu_processes.look(running)
        with self._lock:
            self._select(time.monotonic())
            for listener in self.listeners:
                listener(self._shown.views.values(), self.logs)
        with self._lock:
            run_sets = self._run_sets()
            self._note_health(run_sets)
            self._options.detail.set_runs(sum(len(run_set.runs) for run_set in run_sets))
        if self._is_due("save", SAVE_SECONDS) or any(log.must_be_saved for log in self.logs):
            self.save()
        self.health.poll_seconds = time.monotonic() - started
        self.health.polled = time.time()
        self.caught_up = self.caught_up or not more
        return more

    def _select(self, now: float) -> None:
        """Judge all runs by now, and select those that are shown."""
        for source in self.sources:
            source.update(self._judge, now)
        sightings = [sighting for source in self.sources for sighting in source.sightings]
        logs = {path: place for source in self.sources for path, place in source.named_by_path.items()}
        self._duplicates.update(sightings, now)
        self._shown = select(sightings, logs, self._duplicates.first, self._gpus)
        self._limit.duplicates = self._shown.duplicate_logs

    def metrics(self) -> bytes:
        """Return the exposition page."""
        now = time.monotonic()
        with self._lock:
            views = self._shown.views
            self._texts = {
                place: self._texts.get(place) or RunText(self.settings.overrides) for place in views
            }
            chunks = [self._texts[place].chunks(view, now) for place, view in views.items()]
            return page(chunks, self.health.samples())

    @contextmanager
    def views(self) -> Iterator[Collection[View]]:
        """Yield the runs that are shown; nothing of them changes until it is left."""
        with self._lock:
            yield self._shown.views.values()

    def mark(self, name: str, note: str) -> None:
        """Re-baseline a run from its next step on. Raises UnknownRunError: no run of that name is shown."""
        with self._lock:
            views = {view.name: view for view in self._shown.views.values()}
            if name not in views:
                raise UnknownRunError(name, views)
            for run in (views[name].run, *views[name].duplicates):
                run.mark(time.time(), note)
        self._due["save"] = 0.0  # with the next look, not only some time later

    def save(self) -> None:
        """Write the state of all runs that changed."""
        for source in self.sources:
            source.save()
        self.states.flush()
        self.health.state_errors = self.states.errors

    def _is_due(self, what: str, seconds: float) -> bool:
        """Whether it is time to do this again."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _follow_clock(self) -> None:
        """Have no run look silent for the time that the machine slept, or by which its clock was set."""
        epoch = time.time() - time.monotonic()
        jump, self._epoch = epoch - self._epoch, epoch
        if abs(jump) > CLOCK_SECONDS:
            with self._lock:
                for run in (run for run_set in self._run_sets() for run in run_set.runs.values()):
                    run.times.shift(jump)

    def _run_sets(self) -> list[RunSet]:
        return [run_set for source in self.sources for run_set in source.run_sets()]

    def _note_health(self, run_sets: Sequence[RunSet]) -> None:
        health, shown, wall = self.health, self._shown, time.time()
        health.collisions, health.duplicates = shown.collisions, shown.duplicate_runs
        health.dormant = sum(source.dormant for source in self.sources)
        health.left_out, health.targets = Counter(), []
        for source in self.sources:
            source.report(health, wall)
        health.refused = sum(run_set.refused for run_set in run_sets)
        own = (mount for mount in (self.states.thread, *self.hangable) if mount.hangs)
        hung = (*own, *self.logs.hung)
        health.hung = {mount.point: wall - mount.silent for mount in hung}
        health.runs = Counter(view.state for view in shown.views.values())
        # A run that is running explains the logs beside it, however long its steps take.
        running = (view.run for view in shown.views.values() if view.state == "running")
        if any(run.progress.first is not None for run in running):
            health.unstarted = {}
        else:
            runs = (run for run_set in run_sets for run in run_set.runs.values())
            health.unstarted = self.logs.unstarted(runs, time.monotonic())

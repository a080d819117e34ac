"""Watch the run folders: find logs, read what they gained, tell how their runs go on."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from exporter.runs import discover
from exporter.runs.exposition import RunText, View, page
from exporter.runs.health import Health
from exporter.runs.holders import Holders
from exporter.runs.lifecycle import Evidence, Silence, state
from exporter.runs.log import Log
from exporter.runs.names import run_name, run_names, shared
from exporter.runs.notice import Notice
from exporter.runs.refusal import Refusal, Refusals, refusal
from exporter.runs.statefile import StateFolder

READ_SECONDS = 1.0
"""How long one look reads at most: runs are shown, and signals heeded, during a cold start too."""
YIELD_SECONDS = 0.0005
"""Pause between two blocks: a lock released and taken again at once is never handed over."""
DISCOVER_SECONDS = 5.0
HOLDERS_SECONDS = 1.0
SAVE_SECONDS = 10.0
ENDED_BADLY = frozenset({"failed", "vanished", "stopped"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the exporter is told. All durations in seconds."""

    paths: tuple[str, ...]
    state_folder: Path | None = None
    hold: float = 15.0
    forget_after: float = 12 * 3600.0
    silence: Silence = field(default_factory=Silence)
    poll: float = 0.5


class Watch:
    """All logs and their runs. ``look`` is called again and again; ``metrics`` from any thread."""

    def __init__(self, settings: Settings, holders: Holders | None = None) -> None:
        self.settings = settings
        self.health = Health()
        self.states = StateFolder(settings.state_folder)
        self.holders = holders or Holders()
        self.logs: dict[Path, Log] = {}
        self._texts: dict[Path, RunText] = {}
        self._views: list[tuple[Path, View]] = []
        self._refusals = Refusals()
        self._notice = Notice()
        self._due: dict[str, float] = {}
        self._lock = Lock()

    def look(self) -> bool:
        """Find new logs, read what was appended, and look at the writers.

        Returns true if there is more to read at once.
        """
        started = time.monotonic()
        if self._is_due("discover", DISCOVER_SECONDS):
            self._discover()
        self._read_all()
        if self._is_due("notice", DISCOVER_SECONDS):
            self._notice.tell(self._refused())
        if self._is_due("holders", HOLDERS_SECONDS):
            self._look_at_writers()
        with self._lock:
            self._views = self._current_views()
        if self._is_due("save", SAVE_SECONDS):
            self.save()
        self.health.poll_seconds = time.monotonic() - started
        self.health.polled = time.time()
        return any(log.more for log in self.logs.values())

    def metrics(self) -> bytes:
        """The exposition page."""
        now = time.monotonic()
        with self._lock:
            chunks = [self._text(path).chunks(view, now) for path, view in self._views]
            return page(chunks, self.health.samples())

    def save(self) -> None:
        """Write the state files of all runs that changed."""
        for log in self.logs.values():
            log.save()

    def _is_due(self, what: str, seconds: float) -> bool:
        """Is it time to do this again? What takes long is done less often."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _discover(self) -> None:
        started = time.monotonic()
        self._refusals = Refusals()
        found = {file.path: file for file in discover.files(list(self.settings.paths), self._refusals)}
        for path, file in found.items():
            if path not in self.logs or self.logs[path].replaced(file):
                self.logs[path] = Log(file, self.states, self.health, self.settings.hold)
        for path in [path for path in self.logs if path not in found and self._forgettable(path)]:
            self._forget(path)
        self._due["discover"] = max(self._due["discover"], started + 20 * (time.monotonic() - started))

    def _forgettable(self, path: Path) -> bool:
        """May a file that is gone be forgotten? One that was a run stays until its time is over."""
        log = self.logs[path]
        return log.run is None or _quiet(log) > self.settings.forget_after

    def _forget(self, path: Path) -> None:
        self.logs.pop(path).forget()
        self._texts.pop(path, None)
        self.holders.forget(path)

    def _read_all(self) -> None:
        """A block of each log in turn, so that a long one does not keep the others waiting."""
        now = time.monotonic()
        due = [log for log in self.logs.values() if log.is_due(now)]
        waiting = deque(sorted(due, key=lambda log: (log.more, log.looked)))
        while waiting and not (waiting[0].more and time.monotonic() > now + READ_SECONDS):
            log = waiting.popleft()
            self._read(log)
            if log.more:
                waiting.append(log)
                time.sleep(YIELD_SECONDS)

    def _read(self, log: Log) -> None:
        problem, known = None, log.run is not None
        log.refusal = None
        try:
            with self._lock:
                log.read(time.time(), time.monotonic())
            if log.run and not known:
                self.holders.remember(log.path, time.monotonic(), writer=log.writer)
        except FileNotFoundError:
            problem = "vanished"
        except OSError as error:
            problem, log.refusal = "unreadable", refusal(log.path, error)
        if problem is not None and problem != log.problem:
            self.health.file_errors[problem] += 1
        log.problem = problem

    def _refused(self) -> dict[Path, Refusal]:
        """What cannot be read now: logs, and what the search for them met."""
        logs = (log.refusal for log in self.logs.values() if log.refusal)
        return {**self._refusals.by_path, **{found.path: found for found in logs}}

    def _look_at_writers(self) -> None:
        now = time.monotonic()
        live = [log.path for log in self.logs.values() if log.run and _quiet(log) < 24 * 3600]
        self.holders.look(live, now)

    def _current_views(self) -> list[tuple[Path, View]]:
        runs = {log.path: log.relative for log in self.logs.values() if log.run and log.caught_up}
        names = [run_name(relative) for relative in runs.values()]
        self.health.collisions = len([name for name in names if name in shared(names)])
        self.health.files = Counter(log.kind for log in self.logs.values() if not log.refusal)
        self.health.files["unreadable"] = len(self._refused())
        self.health.unread_bytes = sum(log.unread for log in self.logs.values())
        self.health.dormant = 0
        views = [(path, view) for path, name in run_names(runs).items() if (view := self._view(path, name))]
        self.health.runs = Counter(view.state for _, view in views)
        return views

    def _view(self, path: Path, name: str) -> View | None:
        """The run as it is shown; nothing of one that ended before it was watched, or long ago."""
        log = self.logs[path]
        run = log.run
        if run is None:
            return None
        writer = self.holders.of(log.path)
        if log.grew is not None:
            writer.grown(log.grew)
        log.writer = writer.present()
        run.watched = run.watched or writer.confirmed
        quiet = _quiet(log)
        gone = None if writer.gone_since is None else time.monotonic() - writer.gone_since
        typical = run.times.pace.typical()
        evidence = Evidence(run.ended, run.progress.step, run.total, quiet, gone, bool(log.writer), typical)
        now = state(evidence, self.settings.silence)
        if quiet > self.settings.forget_after and now != "running":
            return None
        if not run.watched and now in ENDED_BADLY:
            self.health.dormant += 1
            return None
        return View(name, run, now, log.writer)

    def _text(self, path: Path) -> RunText:
        return self._texts.setdefault(path, RunText())


def _quiet(log: Log) -> float:
    return log.quiet(time.time(), time.monotonic())

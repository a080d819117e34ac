"""Watch the run folders: find logs, read what they gained, tell how their runs go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from exporter.runs import discover
from exporter.runs.exposition import RunText, View, page
from exporter.runs.health import Health
from exporter.runs.holders import Holders
from exporter.runs.lifecycle import Evidence, Silence, state
from exporter.runs.log import Log
from exporter.runs.statefile import StateFolder

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
        self._due: dict[str, float] = {}
        self._lock = Lock()

    def look(self) -> None:
        """Find new logs, read what was appended, and look at the writers."""
        started = time.monotonic()
        if self._is_due("discover", DISCOVER_SECONDS):
            self._discover()
        self._read_all()
        if self._is_due("holders", HOLDERS_SECONDS):
            self._look_at_writers()
        with self._lock:
            self._views = list(self._current_views())
        if self._is_due("save", SAVE_SECONDS):
            self.save()
        self.health.poll_seconds = time.monotonic() - started
        self.health.polled = time.time()

    def metrics(self) -> bytes:
        """The exposition page."""
        now = time.monotonic()
        with self._lock:
            chunks = [self._text(path).chunks(view, now, self.settings.hold) for path, view in self._views]
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
        found = {file.path: file for file in discover.files(list(self.settings.paths))}
        for path in found.keys() - self.logs.keys():
            self.logs[path] = Log(found[path], self.states, self.health)
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
        waiting = [log for log in self.logs.values() if not log.ignored]
        while waiting:
            waiting = [log for log in waiting if self._read(log)]

    def _read(self, log: Log) -> bool:
        try:
            with self._lock:
                return log.read(time.time(), time.monotonic())
        except FileNotFoundError:
            self.health.file_errors["vanished"] += log.run is None
        except OSError:
            self.health.file_errors["unreadable"] += 1
        return False

    def _look_at_writers(self) -> None:
        now = time.monotonic()
        live = [log.path for log in self.logs.values() if log.run and _quiet(log) < 24 * 3600]
        self.holders.look(live, now)

    def _current_views(self) -> Iterator[tuple[Path, View]]:
        runs = [log for log in self.logs.values() if log.run and log.caught_up]
        shared = {name for name, count in Counter(log.short_name for log in runs).items() if count > 1}
        self.health.collisions = sum(log.short_name in shared for log in runs)
        self.health.files = Counter(log.kind for log in self.logs.values())
        self.health.unread_bytes = sum(log.unread for log in self.logs.values())
        self.health.runs, self.health.dormant = Counter(), 0
        for log in runs:
            name = log.relative.as_posix() if log.short_name in shared else log.short_name
            view = self._view(log, name)
            if view is not None:
                self.health.runs[view.state] += 1
                yield log.path, view

    def _view(self, log: Log, name: str) -> View | None:
        """The run as it is shown; nothing of one that ended before it was watched, or long ago."""
        run = log.run
        if run is None:
            return None
        writer = self.holders.of(log.path)
        run.watched = run.watched or writer.confirmed
        quiet = _quiet(log)
        gone = None if writer.gone_since is None else time.monotonic() - writer.gone_since
        present = bool(writer.present())
        typical = run.times.pace.typical()
        evidence = Evidence(run.ended, run.progress.step, run.total, quiet, gone, present, typical)
        now = state(evidence, self.settings.silence)
        if quiet > self.settings.forget_after and now != "running":
            return None
        if not run.watched and now in ENDED_BADLY:
            self.health.dormant += 1
            return None
        return View(name, run, now, writer.present())

    def _text(self, path: Path) -> RunText:
        return self._texts.setdefault(path, RunText())


def _quiet(log: Log) -> float:
    return log.quiet(time.time(), time.monotonic())

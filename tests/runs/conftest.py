from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from exporter.runs import collector as watch_module
from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.files.state import NAME
from exporter.runs.logs.processes import Writers
from exporter.runs.model.run_set import MOST_RUNS
from tests.runs.scrape import Scrape


class Clock:
    """Time that passes only when a test says so; starts now, since files carry real times."""

    def __init__(self) -> None:
        self.wall = time.time()
        self.steady = 1000.0
        self.pauses = 0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def thread_time(self) -> float:
        """No work counts."""
        return 0.0

    def sleep(self, _seconds: float) -> None:
        """A pause between two blocks is no time that counts, but it is one."""
        self.pauses += 1

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def saved_logs(folder: Path) -> set[str]:
    """The names of the logs of which a state folder holds a state."""
    if not (folder / NAME).exists():
        return set()
    with closing(sqlite3.connect(folder / NAME)) as state:
        return {Path(os.fsdecode(log)).name for (log,) in state.execute("SELECT log FROM logs_1")}


class Watched:
    """A folder that is watched, and the page that is served."""

    def __init__(self, clock: Clock, folder: Path, **more: object) -> None:
        self.clock = clock
        self.folder = folder
        settings = {"path": (str(folder),), **more}
        proc = settings.pop("proc", folder.parent / "no-proc")
        most = settings.pop("most_runs", MOST_RUNS)
        self.watch = Collector(Settings(**settings), Writers(proc), most_runs=most)  # type: ignore[arg-type]

    def look(self, seconds: float = 0.0) -> Scrape:
        """Let time pass, look until all is read, and scrape."""
        self.clock.advance(seconds)
        while self.watch.look():
            pass
        return self.scrape()

    def discover(self) -> Scrape:
        """Look late enough for new files to be found."""
        return self.look(6.0)

    def scrape(self) -> Scrape:
        return Scrape(self.watch.metrics())


Watching = Callable[..., Watched]
"""Makes a watch over the folder; keyword arguments are settings."""


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch_module, "time", clock)
    return clock


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(name="watched")
def _watched(clock: Clock, folder: Path) -> Watching:
    return lambda **more: Watched(clock, folder, **more)

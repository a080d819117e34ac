"""Which runs are shown: named, judged, and each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from exporter.runs.feed import Feed
from exporter.runs.holders import Holders
from exporter.runs.log import Log
from exporter.runs.logs import Logs, Time
from exporter.runs.names import run_name, run_names
from exporter.runs.run import Run
from exporter.runs.twins import Place, Told, Twins
from exporter.runs.views import SHOWN, Judge, Signs, View


class Shown:
    """The runs of logs and feeds, as they are to be shown now.

    ``dormant`` counts runs that had ended before they were watched, ``collisions`` logs that lead to
    a name another one has, ``twins`` logs that tell of a run which another one tells of better.
    """

    def __init__(self, logs: Logs, feeds: Sequence[Feed], holders: Holders, judge: Judge, time: Time) -> None:
        self.dormant = 0
        self.collisions = 0
        self.twins = 0
        self._logs, self._feeds, self._holders, self._judge, self._time = logs, feeds, holders, judge, time
        self._twins = Twins()

    def now(self) -> dict[Place, View]:
        """All views; no two have one name."""
        self.dormant = 0
        logs = {log.path: log.relative for log in self._logs if log.roster and log.caught_up}
        told = [*self._of_logs(logs), *self._of_feeds()]
        once = self._twins.once(told, self._time.monotonic())
        self.twins = len(told) - len(once)
        for one in told:  # a log that tells of another one's run needs no name
            logs.pop(one.at[0], None)
        kept = {one.at[0] for one in once}
        logs |= {log.path: log.relative for log in self._logs if log.path in kept}
        return self._named(once, logs)

    def _named(self, once: Sequence[Told], logs: Mapping[Path, PurePath]) -> dict[Place, View]:
        short = Counter(map(run_name, logs.values()))
        self.collisions = sum(count for count in short.values() if count > 1)
        names = run_names(logs)
        views = {one.at: replace(one.view, name=_name(names.get(one.at[0]), one)) for one in once}
        taken = Counter(view.name for view in views.values())
        return {at: view if taken[view.name] == 1 else _apart(at, view) for at, view in views.items()}

    def _of_logs(self, paths: Iterable[Path]) -> list[Told]:
        return [one for path in paths for one in self._of_log(self._logs.by_path[path])]

    def _of_log(self, log: Log) -> Iterator[Told]:
        runs = log.roster.runs if log.roster else {}
        self._see_writer(log)
        states = {key: self._judge.state(run, self._signs(log, key, run)) for key, run in runs.items()}
        if runs and all(state == "forgotten" for state in states.values()):
            self._logs.lay_aside(log)
        for key, state in states.items():
            if self._is_shown(state):
                yield Told((log.path, key), log.relative, View(key, runs[key], state, log.writer))

    def _of_feeds(self) -> Iterator[Told]:
        now = self._time.monotonic()
        for feed in self._feeds:
            for key, run in feed.roster.runs.items():
                signs = feed.signs(run, now)
                state = self._judge.state(run, signs)
                if self._is_shown(state):
                    name = key or feed.target.name
                    view = View(name, run, state, signs.writer)
                    yield Told((feed.place, key), PurePath(feed.target.name), view)

    def _is_shown(self, state: str) -> bool:
        self.dormant += state == "dormant"
        return state in SHOWN

    def _see_writer(self, log: Log) -> None:
        """Note whether the log's writer is there."""
        holder = self._holders.of(log.file)
        if log.grew is not None:
            holder.grown(log.grew)
        log.writer = holder.present()
        if holder.confirmed:
            for run in log.roster.runs.values() if log.roster else ():
                run.watched = True

    def _signs(self, log: Log, key: str, run: Run) -> Signs:
        now = self._time.monotonic()
        quiet = self._logs.quiet(log)
        if key and run.moved is not None:
            quiet = now - run.moved
        since = self._holders.of(log.file).gone_since
        return Signs(quiet, None if since is None else now - since, log.writer)


def _name(log: str | None, told: Told) -> str:
    """The run's name: its log's, and the one that it has in it."""
    return "/".join(filter(None, (log, told.view.name)))


def _apart(at: Place, view: View) -> View:
    """Series of two runs must never be the same."""
    path, key = at
    return replace(view, name=f"{view.name} ({path}{f' {key}' if key else ''})")

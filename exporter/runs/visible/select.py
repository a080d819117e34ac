"""Which runs are shown: named, judged, and each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath

from exporter.runs.files.mounts import Mount
from exporter.runs.logs.collection import Logs
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import printable, run_name, run_names
from exporter.runs.logs.run_limit import OF_STATE, Priority
from exporter.runs.logs.searcher import Time
from exporter.runs.logs.unstarted import explains
from exporter.runs.logs.writers import Writer, Writers
from exporter.runs.model.run import Run
from exporter.runs.visible.duplicates import Duplicates, Place, Sighting
from exporter.runs.visible.polling import Polling
from exporter.runs.visible.views import SHOWN, Judge, Signs, View


class Selection:
    """The runs of logs and feeds, as they are to be shown now.

    ``dormant`` counts runs that had ended before they were watched, ``collisions`` logs that lead to
    a name another one has, ``twins`` logs that report a run which another one reports better.
    """

    def __init__(
        self, logs: Logs, feeds: Sequence[Polling], holders: Writers, judge: Judge, time: Time
    ) -> None:
        self.dormant = 0
        self.collisions = 0
        self.twins = 0
        self._logs, self._feeds, self._holders, self._judge, self._time = logs, feeds, holders, judge, time
        self._twins = Duplicates()
        self._named_logs: list[Log] = []
        self._names: dict[Path, str] = {}
        self._states: dict[int, str] = {}
        self._late: AbstractSet[Mount] = frozenset()

    def now(self) -> dict[Place, View]:
        """All views; no two have one name."""
        self.dormant = 0
        before, self._states = self._states, {}
        self._late = self._logs.late
        logs = [log for log in self._logs if log.roster and log.caught_up]
        sightings = [one for log in logs for one in self._of_log(log, before)]
        sightings += self._of_feeds()
        once = self._twins.once(sightings, self._time.monotonic())
        self.twins = len(sightings) - len(once)
        names = self._names_of(logs, sightings, once)
        texts = [text for log in self._logs if log.is_text for text in self._of_text(log, sightings, before)]
        return self._named([*once, *texts], {**_names_of_texts(texts, names.values()), **names})

    def _names_of(
        self, logs: list[Log], sightings: list[Sighting], once: list[Sighting]
    ) -> Mapping[Path, str]:
        """A name for each log, but for those that report another one's run."""
        needless = {one.at[0] for one in sightings} - {one.at[0] for one in once} if self.twins else set()
        for log in logs:
            if log.path in needless and log.priority is not None:
                log.priority = min(log.priority, Priority.TWIN)
        named = [log for log in logs if log.path not in needless] if needless else logs
        if named != self._named_logs:
            self._named_logs, self._names = named, run_names({log.path: log.relative for log in named})
            short = Counter(run_name(log.relative) for log in named)
            self.collisions = sum(count for count in short.values() if count > 1)
        return self._names

    def _named(self, once: list[Sighting], logs: Mapping[Path, str]) -> dict[Place, View]:
        names = [_name(logs.get(one.at[0]), one) for one in once]
        taken = Counter(names)
        if len(taken) < len(names):  # series of two runs must never be the same
            # A log keeps its name when a page comes that has it too, and may report the same run.
            of_logs = Counter(name for name, one in zip(names, once, strict=True) if one.at[0] in logs)
            names = [
                name if (of_logs if one.at[0] in logs else taken)[name] == 1 else _apart(name, one)
                for name, one in zip(names, once, strict=True)
            ]
        return {
            one.at: View(name, one.run, one.state, one.writer, one.twins, one.unread, one.writers)
            for name, one in zip(names, once, strict=True)
        }

    def _state(self, run: Run, signs: Signs, log: Log, before: Mapping[int, str]) -> str:
        """The run's state, or the last one where its mount owes an answer: silence means nothing then."""
        late = log.unread_since is not None or log.mount in self._late
        last = before.get(run.serial) if late else None
        state = self._states[run.serial] = last or self._judge.state(run, signs)
        return state

    def _of_log(self, log: Log, before: Mapping[int, str]) -> list[Sighting]:
        runs = log.roster.runs if log.roster else {}
        holder = self._see_writer(log)
        found: list[Sighting] = []
        writers = frozenset([holder.process] if log.writer and holder.process else ())
        forgotten = bool(runs)
        log.priority = None
        for key, run in runs.items():
            state = self._state(run, self._signs(log, key, run, holder), log, before)
            log.priority = max(log.priority or 0, OF_STATE.get(state, Priority.UNSHOWN))
            run.watched = run.watched or (state == "running" and log.writer is True)
            forgotten = forgotten and state == "forgotten"
            if self._is_shown(state):
                found.append(
                    Sighting(
                        (log.path, key),
                        log.relative,
                        run,
                        state,
                        log.writer,
                        holder.process,
                        gone=holder.gone_since,
                        unread=log.unread_since,
                        writers=writers,
                    )
                )
        if forgotten:
            self._logs.lay_aside(log)
        return found

    def _of_text(
        self, log: Log, sightings: Sequence[Sighting], before: Mapping[int, str]
    ) -> Iterator[Sighting]:
        """The run of a text without a record, if it ended badly and no run with steps explains the text."""
        if not self._holders.knows(log.file) and log.preamble is None:
            return
        holder, now = self._see_writer(log), self._time.monotonic()
        if log.preamble is None:
            return
        run = log.preamble.run
        state = self._state(run, self._signs(log, "", run, holder), log, before)
        if not log.preamble.is_end(state, now - log.quiet(now), writer=log.writer):
            return
        if not any(self._explains(one, log) for one in sightings):
            yield Sighting((log.path, ""), log.relative, run, state, log.writer, unread=log.unread_since)

    def _explains(self, sighting: Sighting, text: Log) -> bool:
        log = self._logs.by_path.get(sighting.at[0])
        process = self._holders.of(log.file).process if log else None
        return explains(sighting.run, log, text, process, self._holders.of(text.file).process)

    def _of_feeds(self) -> Iterator[Sighting]:
        now = self._time.monotonic()
        for feed in self._feeds:
            feed.roster.priorities.clear()
            for key, run in feed.roster.runs.items():
                signs = feed.signs(key, run, now)
                state = self._judge.state(run, signs)
                feed.roster.priorities[key] = OF_STATE.get(state, Priority.UNSHOWN)
                if self._is_shown(state):
                    at = (feed.place, key or feed.name)
                    yield Sighting(at, PurePath(feed.name), run, state, signs.writer)

    def _is_shown(self, state: str) -> bool:
        self.dormant += state == "dormant"
        return state in SHOWN

    def _see_writer(self, log: Log) -> Writer:
        """Note whether the log's writer is there; returns what is known about it."""
        holder = self._holders.of(log.file)
        if log.grew is not None:
            holder.grown(log.grew)
        log.writer = holder.present()
        if holder.confirmed and not holder.only_named:
            for run in log.runs:
                run.watched = True
        return holder

    def _signs(self, log: Log, key: str, run: Run, holder: Writer) -> Signs:
        now, gone = self._time.monotonic(), holder.gone_since
        quiet = now - run.moved if key and run.moved is not None else log.quiet(now)
        return Signs(quiet, None if gone is None else now - gone, None if holder.only_named else log.writer)


def _names_of_texts(texts: Sequence[Sighting], taken: Collection[str]) -> dict[Path, str]:
    """Names as of any log, but a run with steps keeps its own."""
    names = run_names({text.at[0]: text.place for text in texts})
    return {
        text.at[0]: printable(text.place) if names[text.at[0]] in taken else names[text.at[0]]
        for text in texts
    }


def _name(log: str | None, sighting: Sighting) -> str:
    """The run's name: its log's, and the one that it has in it."""
    return "/".join(filter(None, (log, sighting.at[1])))


def _apart(name: str, sighting: Sighting) -> str:
    """More than the name, which another run has too."""
    return f"{name} ({' '.join(map(str, filter(None, sighting.at)))})"

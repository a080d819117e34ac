"""The states of runs in logs: by their words, their writers and their silence.

A text without a record is a trainer that loads, waits, or fails before its first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from exporter.runs.files.mounts import Mount
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import printable
from exporter.runs.logs.processes import Writer, Writers
from exporter.runs.model.ends import Judge, Sighting, Signs, ended_before_a_step, is_shown
from exporter.runs.model.run import Run
from exporter.runs.model.run_set import OF_STATE, Priority

WRITER_SECONDS = 24 * 3600.0  # the writer of a log that has been silent for that long is not searched for
StateOf = Callable[[Log, str, Run, Writer], str]


class RunStates:
    """What the last ``update`` found: the runs to show, and how many are dormant."""

    def __init__(self, writers: Writers) -> None:
        self.sightings: Sequence[Sighting] = ()
        self.dormant = 0
        self._writers = writers
        self._last: dict[int, str] = {}

    def may_be_written(self, logs: Iterable[Log], now: float, wall: float) -> list[Log]:
        """The logs whose writers are worth a look: a run folder may hold thousands of old texts."""
        found: list[Log] = []
        for log in logs:
            if log.kind == "empty":  # a trainer may fail right behind its first words
                due = wall - log.found.changed < GROWING_SECONDS
            elif log.is_text:
                due = bool(log.writer) or log.quiet(now) < GROWING_SECONDS
            else:
                due = log.run_set is not None and log.quiet(now) < WRITER_SECONDS
            if due:
                found.append(log)
                if not self._writers.knows(log.file):
                    self._writers.remember(log.file, now, writer=log.writer)
        return found

    def update(self, logs: Sequence[Log], late: AbstractSet[Mount], judge: Judge, now: float) -> list[Log]:
        """Judge all runs but those on ``late`` mounts; returns logs whose runs have all left the pages."""
        before, self._last = self._last, {}

        def state_of(log: Log, key: str, run: Run, writer: Writer) -> str:
            unanswered = log.unread_since is not None or log.mount in late
            state = before.get(run.serial) if unanswered else None
            if state is None:
                quiet = now - run.moved if key and run.moved is not None else log.quiet(now)
                gone = None if writer.gone_since is None else now - writer.gone_since
                present = None if writer.only_named else log.writer
                launched = log.launch.state if log.launch else None
                after = now - log.quiet(now) - run.ended_at if run.ended else 0.0
                state = judge.state(
                    run, Signs(quiet, gone, present, launched, _since_last_step(log, run, now), after)
                )
            self._last[run.serial] = state
            return state

        self.dormant = 0
        found: list[Sighting] = []
        forgotten: list[Log] = []
        for log in logs:
            if log.run_set and log.caught_up:
                seen = list(self._of_log(log, state_of))
                found += [sighting for sighting in seen if is_shown(sighting.state)]
                self.dormant += sum(sighting.state == "dormant" for sighting in seen)
                if seen and all(sighting.state == "forgotten" for sighting in seen):
                    forgotten.append(log)
            elif log.is_text:
                found += self._of_text(log, state_of)
        self.sightings = found
        return forgotten

    def _of_log(self, log: Log, state_of: StateOf) -> Iterator[Sighting]:
        runs = log.run_set.runs if log.run_set else {}
        writer = self._see_writer(log)
        writers = frozenset([writer.process] if log.writer and writer.process else ())
        log.priority = None
        for key, run in runs.items():
            state = state_of(log, key, run, writer)
            log.priority = max(log.priority or Priority.UNSHOWN, OF_STATE.get(state, Priority.UNSHOWN))
            run.watched = run.watched or (state == "running" and log.writer is True)
            yield self._sighting(log, key, run, state, gone=writer.gone_since, writers=writers)

    def _of_text(self, log: Log, state_of: StateOf) -> Iterator[Sighting]:
        """The run of a text without a record, if it ended badly."""
        if log.preamble is None:
            if self._writers.knows(log.file):
                self._see_writer(log)
            return
        run, writer = log.preamble, self._see_writer(log)
        state = state_of(log, "", run, writer)
        if ended_before_a_step(run, state, writer=log.writer, launched=log.launch is not None):
            yield self._sighting(log, "", run, state, text=log.written)

    def _sighting(self, log: Log, key: str, run: Run, state: str, **more: Any) -> Sighting:
        return Sighting(
            (log.path, key),
            log.relative,
            run,
            state,
            log.writer,
            process=self._writers.of(log.file).process,
            unread=log.unread_since,
            appeared=log.appeared,
            launch=log.launch,
            **more,
        )

    def _see_writer(self, log: Log) -> Writer:
        """Note whether the log's writer is present; returns what is known about it."""
        writer = self._writers.of(log.file)
        if log.grew is not None:
            writer.grown(log.grew)
        log.writer = writer.present()
        if writer.confirmed and not writer.only_named:
            for run in log.runs:
                run.watched = True
        return writer


def _since_last_step(log: Log, run: Run, now: float) -> float:
    """Seconds since a run made its last planned step, 0 for others; what is printed later is no step."""
    if not run.made_all_steps:
        return 0.0
    if run.moved is not None:
        return now - run.moved
    return log.quiet(now) + max(0.0, log.written - (run.times.last or log.written))


GROWING_SECONDS = 600.0  # A log that has not grown for that long grows no more: its writer has ended


def unstarted(logs: Iterable[Log], runs: Iterable[Run], now: float) -> dict[str, float]:
    """The oldest log growing without a step and since when, unless a run made a step since it appeared."""
    stepped = max((run.times.last for run in runs if run.times.last is not None), default=0.0)
    waiting = [
        log
        for log in logs
        if log.grew is not None
        and now - log.grew < GROWING_SECONDS
        and log.writer is not False
        and log.appeared > stepped
        and not log.has_step
    ]
    oldest = min(waiting, key=lambda log: log.appeared, default=None)
    return {printable(oldest.relative): oldest.appeared} if oldest else {}

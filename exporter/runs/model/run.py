"""One training run: its records, its statistics and its signs of life."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from statistics import median
from typing import Any

from exporter.runs.model.fingerprint import Fingerprint
from exporter.runs.model.history import Detail, History
from exporter.runs.model.progress import (
    Kind,
    Mark,
    Marks,
    Place,
    PlannedSteps,
    Progress,
    SignalSources,
    Stream,
)
from exporter.runs.signals.key import Keys
from exporter.runs.signals.missing import Missing, Presence
from exporter.runs.signals.reading import Reading
from exporter.runs.signals.record import Ended, Event, Record, ResponseLimit, Servers, TotalSteps
from exporter.runs.signals.truncation import Truncation
from exporter.runs.signals.unmapped import Candidate, RawKeys, RawRule
from exporter.runs.stats.catalogue import Hold, Own, Statistic
from exporter.runs.stats.statistics import Held, SignalStatistics, by_signal, rebaselined

MOST_SERVER_LINES = 100  # of one start: each kind of model may have servers of its own


Recorder = Callable[["Run", Record, Mapping[str, float], "Clock"], None]
"""Gets a run, its record, the signals that were found in it, and when it arrived."""


@dataclass(frozen=True, slots=True)
class Options:
    """What holds for all runs.

    ``hold``: for how many seconds extremes are held. ``keys``: more keys by signal, the first first.
    ``raw``: which numbers are shown that no signal uses. ``detail``: how fine curves are.
    ``own``: what alerts of users' own look at.
    ``recorder`` is called with each record, whatever it counts as.
    """

    hold: float = 15.0
    keys: Keys = field(default_factory=dict)
    raw: RawRule = field(default_factory=RawRule)
    own: Own = field(default_factory=Own)
    detail: Detail = field(default_factory=Detail)
    recorder: Recorder | None = None


@dataclass(slots=True)
class Clock:
    """When records arrived.

    ``wall`` in seconds since the epoch, ``steady`` in seconds of a monotonic clock. ``live`` is
    false for records that were in the log before it was followed: they must not raise alarms.
    ``late``: for how many seconds they had been there; where records tell their times, at most.
    """

    wall: float
    steady: float
    live: bool
    late: float = 0.0

    def of(self, record: Record) -> float | None:
        """When the record was logged, if that is known."""
        return self.wall - self.late if self.live and record.time is None else record.time

    def moved(self, time: float | None) -> float:
        """When a record of that time was logged, in seconds of the monotonic clock."""
        age = self.late if time is None else max(0.0, self.wall - time)
        return self.steady - min(age, self.late)


@dataclass(slots=True)
class Pace:
    """Time between steps, in seconds."""

    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    _typical: float | None = None

    def add(self, seconds: float) -> None:
        """Take the time from one step to the next."""
        if seconds > 0:
            self.intervals.append(seconds)
            self._typical = None

    def typical(self) -> float | None:
        """The usual interval, or ``None`` before there is one.

        The median of the last 64; a third of the longest of them if that is more, up to four
        medians: steps with validation or a checkpoint take ten times as long, and five times the
        typical interval must be longer than they are.
        """
        if self._typical is None and self.intervals:  # asked for at every look
            usual = median(self.intervals)
            self._typical = max(usual, min(max(self.intervals) / 3, 4 * usual))
        return self._typical


@dataclass(slots=True)
class Times:
    """When the run started and logged last, in seconds since the epoch; and its pace.

    ``stepped`` is when the last step was first logged, ``passed`` how long replayed steps took.
    ``undated``: the log does not say when they were.
    """

    start: float | None = None
    last: float | None = None
    stepped: float | None = None
    pace: Pace = field(default_factory=Pace)
    passed: float = 0.0
    undated: bool = False

    def shift(self, seconds: float) -> None:
        """The clock was set by so much, or the machine slept: nothing ran, so nothing was silent."""
        for name in ("start", "last", "stepped"):
            if (time := getattr(self, name)) is not None:
                setattr(self, name, time + seconds)

    def exclude_gap(self, seconds: float, now: float) -> None:
        """Exclude a time up to now in which the log could not be read."""
        if self.last is not None:
            self.shift(min(seconds, max(0.0, now - self.last)))

    def logged(self, time: float, now: float, *, advanced: bool) -> None:
        """A record was logged then; ``advanced``: it is the first of its step."""
        time = min(time, now)  # a trainer's clock that runs ahead of ours is not believed
        if self.start is None:
            self.start = time
        if advanced:
            if self.stepped is not None:
                self.pace.add(time - self.stepped)
            self.stepped = time
        # Never ahead of now either, where our own clock was set back since.
        self.last = time if self.last is None else min(max(time, self.last), now)

    def replayed(self, step_seconds: float | None) -> None:
        """A record of the past, at an unknown time; how long its step took, where it says so."""
        self.undated = True
        if step_seconds is not None and 0 < step_seconds < float("inf"):
            self.pace.add(step_seconds)
            self.passed += step_seconds

    def caught_up(self, written: float) -> None:
        """The log was read up to its end, which was written then."""
        if self.undated:
            self.last = self.stepped = written
            self.undated = False
        if self.start is None and self.last is not None:
            self.start = self.last - self.passed


class Run:
    """A run as its log reports it. ``source`` is the format, ``framework`` whose keys it has.

    ``watched``: a step arrived while the exporter looked on, now or before a restart. Statistics
    that rules look at first exist only then, since a replay of an old log must raise nothing.
    ``moved`` is when the last one was logged, in seconds of the steady clock, and ``ended_at`` when the log
    said that it ``ended``. ``serial`` is unique.
    ``restarts`` counts all starts but the first, ``resumes`` those that did not begin from scratch;
    the last of these ``lost`` this many steps, which are repeated. ``servers`` are those of the
    last start.
    """

    _serials = count()

    def __init__(self, source: str, framework: str, options: Options) -> None:
        self.serial = next(self._serials)
        self.source = source
        self.options = options
        self.reading = Reading(framework, options.keys)
        self.raw = RawKeys(options.raw, self.reading, options.own.keys)
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self.response_limit: int | None = None
        self.watched = False
        self.moved: float | None = None
        self.resumes = self.restarts = 0
        self.marks = Marks()
        self._planned = PlannedSteps()
        self.servers: tuple[Servers, ...] = ()
        self._stepped = False
        self.version = 0
        self._start_over()

    def _start_over(self) -> None:
        self.times = Times()
        self.progress = Progress()
        self.owners = SignalSources()
        self._truncation = Truncation()
        self._presence = Presence()
        self.statistics: dict[str, SignalStatistics] = by_signal(self.options.own.statistics)
        self.latest: dict[str, float] = {}
        self.parts: dict[tuple[str, str], float] = {}
        self.held: dict[Statistic, Held] = {}
        self.trace = Fingerprint()
        self.history = History(self.options.detail, self.options.own.drawn)
        self.records = 0
        self.lost: int | None = None

    def take(self, event: Event, clock: Clock) -> None:
        """Take one thing that the log says."""
        self.version += 1
        match event:
            case Record():
                self._record(event, clock)
            case TotalSteps(steps):
                self._planned.say(steps, event.key, self.progress.step)
            case ResponseLimit(tokens):
                self.response_limit = tokens
            case Servers():
                self._add_servers(event)
            case Ended() if self._is_news(event):
                self.ended, self.ended_at = event, clock.moved(None)

    def _is_news(self, ended: Ended) -> bool:
        """Whether it says more than what was said of the end before; the first cause counts."""
        said = self.ended
        if said is None or not ended.certain or said.cause:
            return said is None
        return not (ended.cause and said.state == "finished")

    def _add_servers(self, servers: Servers) -> None:
        """Servers that are reported without a step between them are of one start; later ones replace them."""
        kept = () if self._stepped else self.servers
        if servers not in kept and len(kept) < MOST_SERVER_LINES:
            self.servers = (*kept, servers)
        self._stepped = False

    def _record(self, record: Record, clock: Clock) -> None:
        self.ended, self._stepped = None, True
        kind, before = self.progress.kind(record), self.place
        self._begin(kind, record)
        advanced = record.step > self.progress.step
        stream = self.progress.take(record)
        if self.marks.passed(before, self.place):
            self.statistics = rebaselined(self.statistics, self.options.own.statistics)
            self.held.clear()
            self.history.mark()
            self.progress.since, self.progress.seen = None, 0  # patience starts at 0
        found = self.reading.signals(record.values)
        if self.options.recorder is not None:
            self.options.recorder(self, record, found, clock)
        self._time(record, found, clock, advanced=advanced)
        if kind is Kind.REPEAT:  # with NaN in the weights, all that a trainer logs may stay the same
            found = {signal: value for signal, value in found.items() if not isfinite(value)}
        if (found or kind is not Kind.REPEAT) and record.step > self.progress.ignore_to:
            self._measure(found, record, stream, clock)

    def _begin(self, kind: Kind, record: Record) -> None:
        """Begin another attempt, if the record is the first of one."""
        if kind in (Kind.FROM_SCRATCH, Kind.RESUME):
            self._planned.begin()
        if kind is Kind.FROM_SCRATCH:
            self.restarts += 1
            self.marks.forget(self.restarts)
            self._start_over()
        elif kind is Kind.RESUME:
            self.restarts += 1
            self.resumes += 1
            self.lost = self.progress.step - record.step + 1
            self.progress.resume()
            self.held.clear()
            self.history.resume(record.step)
            for statistics in self.statistics.values():
                statistics.resume()

    @property
    def total(self) -> int | None:
        """How many steps the trainer will make, if the log says so and the run bears it out."""
        return self._planned.total(self.progress.step)

    @property
    def made_all_steps(self) -> bool:
        """Whether the last step is the last one planned."""
        return self.progress.step >= 0 and self.progress.step == self.total

    def exclude_gap(self, seconds: float, wall: float, steady: float) -> None:
        """Do not count a time in which the log could not be read as silence of the run."""
        self.times.exclude_gap(seconds, wall)
        if self.moved is not None:
            self.moved = min(steady, self.moved + seconds)

    @property
    def place(self) -> Place:
        """Where the run is: by that its marks are found again."""
        return self.restarts, self.progress.step

    def mark(self, time: float, note: str) -> None:
        """Re-baseline the run from its next step on; ``time`` in seconds since the epoch."""
        self.version += 1
        self.marks.add(Mark(*self.place, time, note))

    def _time(self, record: Record, found: dict[str, float], clock: Clock, *, advanced: bool) -> None:
        if clock.live:
            self.watched, self.moved = True, clock.moved(record.time)
        time = clock.of(record)
        if time is None:
            self.times.replayed(found.get("step_seconds"))
        else:
            self.times.logged(time, clock.wall, advanced=advanced)

    def _measure(self, found: dict[str, float], record: Record, stream: Stream, clock: Clock) -> None:
        self.records += self.progress.count(record)
        self._truncation.correct(found, record.values, self.response_limit)
        new = {signal: value for signal, value in found.items() if signal not in stream.counted}
        if len(self.progress.streams) > 1:
            new = self.owners.own(new, stream, self.progress, lambda signal: self.statistics[signal].measured)
        stream.counted.update(new)
        self._presence.note(self.records, new)
        self.latest.update(new)
        self.parts.update(self.reading.parts(record.values))
        self.reading.note(record.values)
        self.trace.note(record.step, new)
        new |= self._own(record, stream)
        moved = [signal for signal in new if signal in self.statistics]
        for signal in moved:
            self.statistics[signal].add(new[signal], record.step)
        self.history.note(record.step, clock.of(record), new, self.statistics)
        if clock.live:
            for signal in moved:  # a statistic may span two signals: all have moved by now
                self._hold(self.statistics[signal], clock.steady)

    def _own(self, record: Record, stream: Stream) -> dict[str, float]:
        """Return the values of the raw keys that alerts of users' own look at, each once a step."""
        found = {
            key: float(value)
            for key in self.options.own.keys
            if isinstance(value := record.values.get(key), int | float) and key not in stream.counted
        }
        stream.counted.update(found)
        return found

    def candidates(self) -> tuple[Candidate, ...]:
        """Signals that the run lacks, with the keys that may carry them, for anyone who watches it."""
        return self.raw.candidates(self.reading.carried.union(self.latest))

    def missing(self) -> tuple[Missing, ...]:
        """Signals that an RL run has, and this one lacks or has lost."""
        return self._presence.missing(self.records, self.reading.carried.union(self.latest), self.raw)

    def _hold(self, statistics: SignalStatistics, now: float) -> None:
        for statistic, read in statistics.readers:
            if statistic.hold is not Hold.NONE and (value := read()) is not None:
                held = self.held.get(statistic)
                if held is None:
                    held = self.held[statistic] = Held(statistic.hold, self.options.hold)
                held.add(now, value)

    def snapshot(self) -> dict[str, Any]:
        """What a restart could not rebuild from an emptied log, as plain JSON values."""
        return {
            "statistics": {name: signal.snapshot() for name, signal in self.statistics.items()},
            "progress": self.progress.snapshot(),
            "latest": {signal: value for signal, value in self.latest.items() if isfinite(value)},
            "records": self.records,
            "resumes": self.resumes,
            "restarts": self.restarts,
            "lost": self.lost,
            "total": self.total,
            "owners": self.owners.snapshot(),
            "start": self.times.start,
            "last": self.times.last,
            "trace": self.trace.snapshot(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Start from what ``snapshot`` returned."""
        self.progress.restore(saved["progress"])
        self.latest = dict(saved["latest"])
        for name in ("records", "resumes", "restarts", "lost"):
            setattr(self, name, saved[name])
        self._planned.restore(saved["total"])
        self.owners.restore(saved["owners"])
        self.times.start, self.times.last = saved["start"], saved["last"]
        self.trace.restore(saved["trace"])
        for name in self.statistics.keys() & saved["statistics"].keys():
            self.statistics[name].restore(saved["statistics"][name])

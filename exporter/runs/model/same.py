"""Whether two logs are of one run: by their numbers, their times, and where they lie.

Several logs may report one run: verl writes a console log beside its JSON lines, Hugging Face's trainer
event files beside both. Such logs lie side by side or grow together, and hold the same numbers at the same
steps. But so do two runs with one seed: two logs of one format are two runs, unless one is seen to be a copy
of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath

from exporter.runs.model.ends import Place, Sighting, of_all_logs
from exporter.runs.model.run import Times

COMPARE_SECONDS = 5.0
TOGETHER_SECONDS = 60.0  # Logs of one run get their last steps at the same time, but for buffers
SLACK_SECONDS = 5.0  # Buffers delay what a log says, but not by much at a run's start
LAGGING = "trainer_state"  # Written after the steps that it holds, and dated by that
BEHIND = "wandb"  # Written 32 KiB at a time: its last step does not show when another log's was
BEST = ("tensorboard", "verl_jsonl", "scoped_jsonl", "mlflow", "prometheus_page", "flat_jsonl")
"""Exact numbers first, then what is live; text and what is written now and then come after these."""
LAST = frozenset({"rl_insight", "wandb"})
"""A page comes by itself, and later than the log beside it, whose run must not change its name then.
W&B's file is minutes behind it."""
GENERIC_FOLDERS = frozenset({"files", "logs"})
"""Folders that W&B and trainers put between a run's folder and its log."""
EVENT_FOLDERS = frozenset({"runs", "tensorboard", "tb"})  # Folders that trainers put around event files
REMEMBERED = 10_000  # Paths of logs whose homes are remembered: they are asked for at every look


@lru_cache(REMEMBERED)
def home(path: PurePath) -> PurePath:
    """The run's own folder: what is above the folders that trainers and trackers make in it."""
    folders = [part for part in path.parent.parts if part not in GENERIC_FOLDERS]
    while folders and folders[-1] in EVENT_FOLDERS:
        folders.pop()
    return PurePath(*folders)


class Duplicates:
    """Finds runs that are reported twice; ``first`` maps each to its best place.

    Pairs that differ are remembered in one bit each, by the runs' serial numbers: 400 runs are 80,000 pairs.
    """

    def __init__(self) -> None:
        self.first: Mapping[Place, Place] = {}
        self._bits: dict[int, int] = {}
        self._distinct: dict[int, int] = {}
        self._due = 0.0

    def update(self, sightings: Sequence[Sighting], now: float) -> None:
        """Compare the runs with steps, if it is time or others are there; ``now`` in seconds, steady."""
        seen = [one for one in sightings if one.text is None]
        if now < self._due and self.first.keys() == {one.at for one in seen}:
            return
        self._due = now + COMPARE_SECONDS
        serials = {one.run.serial for one in seen}
        self._bits = {run: bit for run, bit in self._bits.items() if run in serials}
        used = sum(self._bits.values())
        self._distinct = {run: bits & used for run, bits in self._distinct.items() if run in serials}
        for run in serials - self._bits.keys():
            bit = self._bits[run] = ~used & (used + 1)  # the lowest that is free
            used |= bit
        runs: list[tuple[list[Sighting], list[int]]] = []  # logs, and their bits in one number
        for one in sorted(seen, key=rank):
            same = [
                (logs, bits)
                for logs, bits in runs
                if not bits[0] & self._distinct.get(one.run.serial, 0)
                and all(self._same(other, one) for other in logs)
            ]
            if same:
                logs, bits = max(same, key=lambda run: _likeness(run[0][0], one))
                logs.append(one)
                bits[0] |= self._bits[one.run.serial]
            else:
                runs.append(([one], [self._bits[one.run.serial]]))
        self.first = {one.at: logs[0].at for logs, _ in runs for one in logs}

    def _same(self, a: Sighting, b: Sighting) -> bool:
        """Whether two logs of one time that lie side by side (or below), or grow together, are one run's."""
        sources, times, others = (a.run.source, b.run.source), a.run.times, b.run.times
        # neither began only after the other's end: a retry with the same seed repeats all numbers
        if a.at[0] == b.at[0] or (
            LAGGING not in sources
            and not (_began_before_the_end(times, others) and _began_before_the_end(others, times))
        ):
            return False
        together = (
            times.last is not None
            and others.last is not None
            and (BEHIND in sources or abs(times.last - others.last) < TOGETHER_SECONDS)
        )
        one, other = home(a.place), home(b.place)
        beside = PurePath() not in (one, other) and (one.is_relative_to(other) or other.is_relative_to(one))
        if not together and not beside:
            return False
        same = a.run.trace.is_same(b.run.trace)
        # a trainer writes each format once; W&B keeps a second console log
        of_wandb = [each.place.parts[-2:] == ("files", "output.log") for each in (a, b)]
        of_one_format = sources[0] == sources[1] and of_wandb[0] == of_wandb[1]
        copy = _is_copy(a, b) if same is not False and of_one_format else True
        if False in (same, copy):
            for run, other_run in ((a, b), (b, a)):
                known = self._distinct.get(run.run.serial, 0)
                self._distinct[run.run.serial] = known | self._bits[other_run.run.serial]
        return bool(same and copy)


def _began_before_the_end(one: Times, other: Times) -> bool:
    if one.start is None or other.last is None or one.start == one.last:  # the log does not say when
        return True
    return one.start <= other.last + SLACK_SECONDS


def _is_copy(a: Sighting, b: Sighting) -> bool | None:
    """Whether one log is the other's copy: one process, equal times, or compressed; ``None``: unknown."""
    if f"{a.place}.gz" == str(b.place) or f"{b.place}.gz" == str(a.place):
        return True
    if a.process and b.process:
        return a.process == b.process
    return a.run.trace.took_as_long(b.run.trace)


def _likeness(a: Sighting, b: Sighting) -> tuple[bool, ...]:
    """By what the logs of one run are found among those of runs with the same numbers."""
    return (
        bool(a.run.trace.took_as_long(b.run.trace)),
        a.process is not None and a.process == b.process,
        home(a.place) == home(b.place),
        a.place.stem == b.place.stem,
    )


def rank(sighting: Sighting) -> tuple[int, str]:
    """The order of the logs of one run, the best first."""
    source = sighting.run.source
    known = BEST.index(source) if source in BEST else len(BEST)
    return known + (source in LAST), str(sighting.place)


def merged(sightings: Sequence[Sighting], first: Mapping[Place, Place]) -> list[Sighting]:
    """Each run once, in its best log, in the state that follows from all its logs together."""
    groups: dict[Place, list[Sighting]] = {}
    for one in sightings:
        groups.setdefault(first[one.at], []).append(one)
    found: list[Sighting] = []
    for group in groups.values():
        best = min(group, key=rank)
        if len(group) > 1:
            best = replace(
                best,
                state=of_all_logs(group),
                writer=any(one.writer for one in group) or best.writer,
                duplicates=tuple(one.run for one in group if one is not best),
                writers=frozenset().union(*(one.writers for one in group)),
                launch=next((one.launch for one in group if one.launch), None),
            )
        found.append(best)
    return found


def explains(seen: Sighting, text: Sighting) -> bool:
    """Whether a text is another output of the trainer of a run with steps, such as its standard error.

    The run made steps while the text was there. Two files of one process, or of one name but for its
    end, belong together; so do a run and a text beside it that came at one time, unless each has a writer of
    its own in a folder of many runs.
    """
    first, last = seen.run.times.start, seen.run.times.last
    if first is None or last is None or text.text is None or text.appeared is None:
        return False
    if last < text.appeared or first > text.text + TOGETHER_SECONDS:
        return False
    earliest = text.appeared - TOGETHER_SECONDS
    if seen.appeared is None:  # a page or a server
        return first > earliest
    if seen.process is not None and seen.process == text.process:
        return True
    if seen.place.with_suffix("") == text.place.with_suffix(""):
        return True
    own = home(text.place)
    beside = seen.process is None or (own.parts and home(seen.place) == own)
    return bool(beside) and seen.appeared > earliest

"""The watcher of a trainer's checkpoints: notes the complete ones, and keeps the best by the run's log."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from exporter.runs.files import launch
from exporter.runs.files.launch import MOST_CHECKPOINTS, SavedStep
from exporter.runs.logs import find
from exporter.runs.model.run import Clock, Options
from exporter.runs.model.run_set import RunSet
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.record import Event, Record
from stepwatch.config import load
from stepwatch.deploy.native.state import State
from stepwatch.launch import layouts
from stepwatch.launch.best import VALIDATION, BestFolder, Kept, NotKept, facts
from stepwatch.launch.layouts import Checkpoint, Files
from stepwatch.operate import logfiles
from stepwatch.operate.logfiles import UnreadError
from stepwatch.render import layout
from stepwatch.schema.errors import Refused
from stepwatch.schema.scalars import fits

LOOK_SECONDS, SHARE = 2.0, 20
"""Between two looks; longer where one takes long, so that they take at most a 20th of a core."""
REWARD = "smoothed reward"


@dataclass
class Scores:
    """What a run logged: its last step (-1 for none), validation scores and smoothed rewards by step."""

    last: int = -1
    evaluations: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)

    def of(self, step: int) -> tuple[float, str, str] | None:
        """Return the score of the weights after a step, what it measures, and that in words.

        It is that of the last evaluation if the run has any, else the reward.
        """
        measure, values = (VALIDATION, self.evaluations) if self.evaluations else (REWARD, self.means)
        at = max((each for each in values if each <= step), default=None)
        if at is None:
            return None
        behind = "" if at == step else f", the last before step {step}"
        return values[at], measure, f"{measure} {values[at]:.4g} at step {at}{behind}"


class _Scored(RunSet):
    """The runs of a log, whose scores are noted as each record is taken."""

    def __init__(self, scores: dict[str, Scores], *about: Any, **known: Any) -> None:
        super().__init__(*about, **known)
        self._scores = scores

    def take(self, event: Event, clock: Clock) -> None:
        super().take(event, clock)
        run = self.runs.get(event.run)
        if run is None or not isinstance(event, Record):
            return
        if run.records <= 1:  # the first of a start from scratch
            self._scores[event.run] = Scores()
        scores, step = self._scores.setdefault(event.run, Scores()), run.progress.step
        scores.last = step
        found = run.reading.signals(event.values)
        if math.isfinite(value := found.get("validation_score", math.nan)):
            scores.evaluations[step] = value
        if "reward" in found and (mean := run.statistics["reward"].mean()) is not None:
            scores.means[step] = mean


def read_scores(logs: Sequence[Path], options: Options) -> Scores:
    """Return the scores of the first of these logs that has any."""
    for log in logs:
        scores: dict[str, Scores] = {}
        for found in find.files([str(log)]):
            with suppress(UnreadError):
                logfiles.read(found, options, partial(_Scored, scores))
        best = max(scores.values(), key=lambda each: each.last, default=Scores())
        if best.evaluations or best.means:
            return best
    return Scores()


class Watcher:
    """Over one call of the wrapper; ``keep`` of ``None`` is what config.yaml says."""

    def __init__(self, log: Path, run: str, folder: Path, keep: int | None, config: Path | None) -> None:
        self._log, self._run, self._folder, self._keep, self._config = log, run, folder, keep, config
        self._seen: dict[str, tuple[Files, set[str]]] = {}
        self._noted: list[SavedStep] = []
        self._judged: object = None
        self._best: dict[Path, int] = {}
        self._pending = False
        self._said: set[str] = set()

    def watch(self, ends: int) -> None:
        """Look until the trainer has ended, as a file descriptor does then, and once more."""
        ended, took = False, 0.0
        while not ended:
            ended = bool(select.select([ends], [], [], max(LOOK_SECONDS, SHARE * took))[0])
            begun = time.monotonic()
            self.look(ended=ended)
            took = time.monotonic() - begun

    def look(self, *, ended: bool = False) -> None:
        """Look at the folder once, note what is complete, and keep the best if something has changed."""
        there = layouts.found(self._folder)
        self._seen = {each.name: self._seen.get(each.name, ({}, set())) for each in there}
        complete = [each for each in there if self._is_complete(each, ended=ended)]
        self._note(complete)
        if self._state(complete, ended=ended) != self._judged:
            try:
                self._keep_best(complete, ended=ended)
            except NotKept as reason:
                self._say(str(reason))
            except Refused as refusal:
                self._say(f"no checkpoint is kept: {refusal}")
            except OSError as error:
                self._say(f"no checkpoint of {self._folder} is kept: {error.strerror}.")
            self._judged = self._state(complete, ended=ended)
            self._note(complete)

    def _is_complete(self, now: Checkpoint, *, ended: bool) -> bool:
        """Whether it is whole, was left alone since the last look, and no rotation has begun to delete it."""
        before, names = self._seen[now.name]
        settled = now.files == before and names == now.files.keys()
        alone = (ended or now.files == before) and names <= now.files.keys()
        complete = settled or (alone and layouts.is_whole(now))
        self._seen[now.name] = now.files, set(now.files) if complete else names
        return complete

    def _state(self, complete: Sequence[Checkpoint], *, ended: bool) -> object:
        """What the choice depends on; while a step is not logged yet, on the log too."""
        size = self._log.stat().st_size if self._pending else None
        return [each.files for each in complete], size, ended and self._pending

    def _note(self, complete: Sequence[Checkpoint]) -> None:
        own = {each.name: SavedStep(each.name, each.step) for each in complete}
        kept = [
            SavedStep(f"{path.parent.name}/{path.name}", step)
            for path, step in self._best.items()
            if path.name not in own
        ]
        listed = [*kept, *list(own.values())[-(MOST_CHECKPOINTS - len(kept)) :]]
        found = sorted(listed, key=lambda each: each.step)
        if found != self._noted:
            with suppress(OSError):
                launch.write_checkpoints(self._log, found)
                self._noted = found

    def _keep_best(self, complete: Sequence[Checkpoint], *, ended: bool) -> None:
        """Keep the best of the complete ones. Raises NotKept, Refused, OSError."""
        self._pending = False
        file = self._config or State.chosen(layout.STATE).config(self._say) or layout.config()
        config = load(file)
        wanted = config.checkpoints.keep if fits(config.checkpoints.runs, self._run) else 0
        wanted = wanted if self._keep is None else self._keep
        if not wanted or not (complete or self._best):
            return
        folder = BestFolder(self._folder)
        self._say(*folder.says)
        documents = [each.path / "trainer_state.json" for each in complete[-1:]]
        scores = read_scores([self._log, *documents], Options(keys=keys_of(config.signals)))
        new: dict[str, tuple[Checkpoint, Kept]] = {}
        for each in complete:
            logged = scores.last >= each.step or ended  # verl logs a step after it has saved it
            self._pending = self._pending or not logged
            score, known, files = scores.of(each.step), folder.kept.get(each.name), facts(each.files)
            if logged and score and not (known and known.files == files):
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                new[each.name] = each, Kept(each.name, each.step, *score, at, str(each.path), files)
        # What is kept stays where another is as good: each change costs the disk something.
        kept = list(folder.kept.values())
        ranked = sorted(
            [*kept, *(one for _, one in new.values())],
            key=lambda each: (each.rank, each in kept, each.step),
            reverse=True,
        )
        for checkpoint, one in new.values():
            if one in ranked[:wanted]:
                self._try(partial(folder.keep, checkpoint, one))
        # Only now: what was better may not have been kept after all.
        ranked = sorted(folder.kept.values(), key=lambda each: each.rank, reverse=True)
        for worst in ranked[wanted:]:
            self._try(partial(folder.drop, worst))
        self._best = {folder.place / name: each.step for name, each in folder.kept.items()}

    def _try(self, change: partial[None]) -> None:
        try:
            change()
        except NotKept as reason:
            self._say(str(reason))

    def _say(self, *texts: str) -> None:
        end = "\r\n" if os.isatty(2) else "\n"  # the terminal may be raw
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                with suppress(OSError):
                    os.write(2, f"stepwatch run: {text}{end}".encode())

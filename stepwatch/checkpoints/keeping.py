"""The keeper: scores checkpoints by what the run's log says, keeps the best and ends."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.logs import find
from exporter.runs.model.run import Clock, Options
from exporter.runs.model.run_set import RunSet
from exporter.runs.signals.record import Event, Record
from stepwatch.checkpoints import best
from stepwatch.checkpoints.best import VALIDATION, BestFolder, Busy, Kept, NotKept
from stepwatch.checkpoints.layouts import Checkpoint
from stepwatch.checkpoints.watcher import Order, end_with_parent
from stepwatch.config import load
from stepwatch.deploy.native.state import State
from stepwatch.operate import logfiles
from stepwatch.operate.logfiles import UnreadError
from stepwatch.render import layout
from stepwatch.schema.errors import Refused
from stepwatch.schema.scalars import fits

REWARD = "smoothed reward"


class Score(NamedTuple):
    """What a checkpoint is chosen by: the higher, the better; what it measures, and that in words."""

    value: float
    measure: str
    why: str


@dataclass
class Scores:
    """What a run logged: its last step (-1 for none), validation scores and smoothed rewards by step."""

    last: int = -1
    evaluations: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)

    def of(self, step: int) -> Score | None:
        """Return the score of the weights after a step, by the last evaluation if any, else by the reward."""
        for measure, values in ((VALIDATION, self.evaluations), (REWARD, self.means)):
            if values:
                at = max((each for each in values if each <= step), default=None)
                if at is None:
                    return None
                behind = "" if at == step else f", the last before step {step}"
                return Score(values[at], measure, f"{measure} {values[at]:.4g} at step {at}{behind}")
        return None


def read_scores(logs: Sequence[Path], options: Options) -> Scores:
    """Return the scores of the first of these logs that has any."""
    for log in logs:
        scores: dict[str, Scores] = {}
        for found in find.files([str(log)]):
            with suppress(UnreadError):
                logfiles.read(found, options, partial(_Scored, scores))
        if scores:
            best = max(scores.values(), key=lambda each: each.last)
            if best.evaluations or best.means:
                return best
    return Scores()


class _Scored(RunSet):
    """The runs of a log, whose scores are noted as each record was taken."""

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


@dataclass
class Result:
    """What became of it; ``pending``: more is to be done once the log has the steps of what is saved."""

    wanted: int = 0
    kept: list[tuple[str, int]] = field(default_factory=list)
    place: str = ""
    pending: bool = False
    says: list[str] = field(default_factory=list)


def keep(order: Order, complete: Sequence[Checkpoint]) -> Result:
    """Keep those complete checkpoints that are among the best, and drop what no longer is."""
    result = Result()
    try:
        usual = State.chosen(layout.STATE).config(result.says.append) or layout.config()
        config = load(Path(order.config) if order.config else usual)
    except Refused as refusal:
        result.says.append(f"no checkpoint is kept, since the settings cannot be used: {refusal}")
        return result
    result.wanted = config.checkpoints.keep if fits(config.checkpoints.runs, order.run) else 0
    if order.keep is not None:
        result.wanted = order.keep
    if not result.wanted or not complete:
        return result
    logs = [Path(order.log), complete[-1].path / "trainer_state.json"]
    found = read_scores(logs, Options(keys=config.signals))
    try:
        folder = BestFolder(Path(order.folder))
        with folder.open() as news:
            result.says += news
            _update(folder, complete, found, result, ended=order.ended)
            result.kept = [(each.name, each.step) for each in folder.kept]
            result.place = str(folder.place)
    except Busy:
        result.pending = True
    except NotKept as reason:
        result.says.append(str(reason))
    except OSError as error:
        result.says.append(f"no checkpoint of {order.folder} is kept: {error.strerror}.")
    return result


def _update(
    folder: BestFolder, complete: Sequence[Checkpoint], found: Scores, result: Result, *, ended: bool
) -> None:
    known = {each.name: each.source for each in folder.kept}
    new: list[tuple[Checkpoint, Score]] = []
    for each in complete:
        if known.get(each.name) == each.files:
            continue
        logged = found.last >= each.step or ended  # verl logs a step after it has saved it
        score = found.of(each.step) if logged else None
        result.pending = result.pending or not logged
        if score:
            new.append((each, score))
    # What is kept stays where another is as good: each change costs the disk something.
    ranked: list[tuple[tuple[bool, float], bool, int, Checkpoint | Kept]] = [
        *((best.rank(each), True, each.step, each) for each in folder.kept),
        *(((score.measure == best.VALIDATION, score.value), False, each.step, each) for each, score in new),
    ]
    ranked.sort(key=lambda entry: entry[:3], reverse=True)
    chosen: dict[str, Checkpoint | Kept] = {}
    for *_, one in ranked:
        if len(chosen) < result.wanted:
            chosen.setdefault(one.name, one)
    by_name = {checkpoint.name: score for checkpoint, score in new}
    for checkpoint in (each for each in chosen.values() if isinstance(each, Checkpoint)):
        value, measure, why = by_name[checkpoint.name]
        with _noting(result):
            folder.keep(checkpoint, value, measure, f"{why}; best of the complete checkpoints so far")
    # Only now: what was better may not have been kept after all.
    for worst in sorted(folder.kept, key=best.rank)[: max(0, len(folder.kept) - result.wanted)]:
        with _noting(result):
            folder.drop(worst)


@contextmanager
def _noting(result: Result) -> Iterator[None]:
    try:
        yield
    except NotKept as reason:
        result.says.append(str(reason))


def main(parent: int) -> None:
    """Keep what standard input lists, and write what became of it to standard output."""
    end_with_parent(parent)
    given = json.load(sys.stdin)
    order = Order(**given["order"])
    complete = [
        Checkpoint(Path(order.folder) / name, step, {path: tuple(facts) for path, facts in files.items()})
        for name, step, files in given["complete"]
    ]
    sys.stdout.write(json.dumps(asdict(keep(order, complete))))


if __name__ == "__main__":
    main(int(sys.argv[1]))

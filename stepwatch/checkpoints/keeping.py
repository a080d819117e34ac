"""Keep the best checkpoints of a run: what the keeper of a watcher does, once, for what is there now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from exporter.runs.model.run import Options
from stepwatch.checkpoints import best, scores
from stepwatch.checkpoints.best import BestFolder, Busy, Kept, NotKept
from stepwatch.checkpoints.layouts import Checkpoint
from stepwatch.checkpoints.order import Order
from stepwatch.checkpoints.scores import Score, Scores
from stepwatch.config import Config, load
from stepwatch.deploy.native.state import State
from stepwatch.render import layout
from stepwatch.schema.errors import Refused
from stepwatch.schema.names import fits


@dataclass
class Result:
    """What became of it.

    Attributes:
        wanted: How many checkpoints to keep; 0 for none.
        kept: The names of those that are.
        place: The folder they are in.
        pending: Whether there is more to be done once the log has the steps of what is saved.
        says: What the user should know.
    """

    wanted: int = 0
    kept: list[tuple[str, int]] = field(default_factory=list)
    place: str = ""
    pending: bool = False
    says: list[str] = field(default_factory=list)


def keep(order: Order, complete: Sequence[Checkpoint]) -> Result:
    """Keep those of the complete checkpoints that are among the best, and drop what no longer is.

    Args:
        order: The wrapper's instructions.
        complete: The trainer's checkpoints.
    """
    result = Result()
    try:
        usual = State.chosen(layout.STATE).config(result.says.append) or layout.config()
        config = load(Path(order.config) if order.config else usual)
    except Refused as refusal:
        result.says.append(f"no checkpoint is kept, since the settings cannot be used: {refusal}")
        return result
    result.wanted = _wanted(order, config)
    if not result.wanted or not complete:
        return result
    logs = [Path(order.log), complete[-1].path / "trainer_state.json"]
    found = scores.read(logs, Options(keys=config.signals))
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


def _wanted(order: Order, config: Config) -> int:
    if order.keep is not None:
        return order.keep
    return config.checkpoints.keep if fits(config.checkpoints.runs, order.run) else 0


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

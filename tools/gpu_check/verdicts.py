"""Whether the exporter says what the others say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tools.gpu_check import smi
from tools.gpu_check.nvml import Answers
from tools.gpu_check.rows import ROWS, Row
from tools.gpu_check.served import Page
from tools.gpu_check.smi import Boards

AGREES, ONLY_OURS, LACKS, DIFFERS = "agrees", "only the exporter", "the exporter lacks it", "differs"
BADNESS = (AGREES, ONLY_OURS, LACKS, DIFFERS)


class Round(NamedTuple):
    """What all three said within a second or so."""

    page: Page
    boards: Boards
    answers: Answers


class Verdict(NamedTuple):
    """A row, the GPU on which it is worst, the usual values in our unit, and what follows from them."""

    row: Row
    gpu: str
    ours: float | None
    smi: float | None
    nvml: float | None
    says: str


def verdicts(rounds: Sequence[Round]) -> list[Verdict]:
    """One for each row of which anyone says anything."""
    return [_worst(found) for row in ROWS if (found := list(_each(rounds, row)))]


def _worst(found: Sequence[Verdict]) -> Verdict:
    return max(found, key=lambda verdict: (BADNESS.index(verdict.says), _distance(verdict)))


def _distance(verdict: Verdict) -> float:
    others = (other for other in (verdict.smi, verdict.nvml) if other is not None)
    return max((abs(other - (verdict.ours or 0.0)) for other in others), default=0.0)


def _each(rounds: Sequence[Round], row: Row) -> Iterator[Verdict]:
    for uuid in rounds[0].boards:
        ours = _usual(each.page.value(uuid, row) for each in rounds)
        theirs = _usual(smi.value(each.boards[uuid], row.paths) for each in rounds if uuid in each.boards)
        scaled = theirs if theirs is None else theirs * row.unit
        asked = _usual(
            answer.value if (answer := each.answers.get((uuid, row.name))) else None for each in rounds
        )
        if (ours, scaled, asked) != (None, None, None):
            yield Verdict(row, uuid, ours, scaled, asked, _says(row, ours, scaled, asked))


def _usual(values: Iterator[float | None]) -> float | None:
    """The median of several readings: what moves is hardly ever read at the same time."""
    return median(found) if (found := [value for value in values if value is not None]) else None


def _says(row: Row, ours: float | None, *others: float | None) -> str:
    known = [other for other in others if other is not None]
    if ours is None:
        return LACKS
    if not known:
        return ONLY_OURS
    near = all(abs(ours - other) <= row.slack + row.share * abs(other) + 1e-9 for other in known)
    return AGREES if near else DIFFERS

"""Whether the exporter says what the others say, and what only a real GPU can answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tools.gpu_check.readings import Round, board_value
from tools.gpu_check.rows import ROWS, Row

AGREES, ONLY_OURS, LACKS, DIFFERS = "agrees", "only the exporter", "the exporter lacks it", "differs"
BADNESS = (AGREES, ONLY_OURS, LACKS, DIFFERS)

HELD_SECONDS = 10.0
"""Less time with a clock held down says nothing of the unit."""
SHOWN_CALLS = 3
COUNTED = "gpu_clock_event_seconds_total"
HELD = "gpu_process_memory_bytes"


class Verdict(NamedTuple):
    """A row, the GPU on which it is worst, the usual values in our unit, and what follows from them."""

    row: Row
    gpu: str
    ours: float | None
    smi: float | None
    nvml: float | None
    says: str


def verdicts(rounds: Sequence[Round]) -> list[Verdict]:
    """One for each row with values: that of the GPU on which they differ most."""

    def badness(verdict: Verdict) -> tuple[int, float]:
        others = (other for other in (verdict.smi, verdict.nvml) if other is not None)
        distance = max((abs(other - (verdict.ours or 0.0)) for other in others), default=0.0)
        return BADNESS.index(verdict.says), distance

    return [max(found, key=badness) for row in ROWS if (found := list(_each(rounds, row)))]


def _each(rounds: Sequence[Round], row: Row) -> Iterator[Verdict]:
    for uuid in rounds[0].boards:
        ours = _usual(each.page.value(uuid, row) for each in rounds)
        theirs = _usual(board_value(each.boards[uuid], row.paths) for each in rounds if uuid in each.boards)
        scaled = theirs if theirs is None else theirs * row.unit
        asked = _usual(
            each.answers[uuid, row.name].value for each in rounds if (uuid, row.name) in each.answers
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


def findings(rounds: Sequence[Round], found: Sequence[Verdict]) -> list[str]:
    """What was found out beside the table."""
    return [_throttling(found), _gpm(rounds[-1]), *_pids(rounds[-1]), _latency(rounds)]


def _throttling(found: Sequence[Verdict]) -> str:
    """NVML's header speaks of nanoseconds, and other exporters take its numbers for microseconds."""
    for _, _, ours, theirs, _, _ in (each for each in found if each.row.metric == COUNTED):
        if ours and theirs and max(ours, theirs) > HELD_SECONDS:
            unit = "counts in" if 0.9 < ours / theirs < 1.1 else "does not count in"
            return (
                f"Time with clocks held down is {ours / theirs:.3g} times what nvidia-smi says: "
                f"the driver {unit} nanoseconds."
            )
    return "Unit of the time with clocks held down: not known, no clock was held down for 10 s so far."


def _gpm(last: Round) -> str:
    answers = len(last.page.values("gpu_sm_active_ratio", "uuid"))
    why = {
        sample.labels["reason"]
        for sample in last.page.samples
        if sample.name == "gpu_exporter_unsupported" and "Gpm" in sample.labels["call"]
    }
    said = f", reason: {', '.join(sorted(why))}" if why else ""
    return f"GPM answers user {os.getuid()} on {answers} of {len(last.boards)} GPUs{said}."


def _pids(last: Round) -> Iterator[str]:
    ours = last.page.values(HELD, "pid") - {""}
    boards = last.boards.values()
    theirs = {each.findtext("pid", "") for board in boards for each in board.iter("process_info")} - {""}
    unnamed = sum(sample.name == HELD and not sample.labels["name"] for sample in last.page.samples)
    yield (
        f"Processes: {len(ours & theirs)} that both name, {len(ours - theirs)} that only the exporter does, "
        f"{len(theirs - ours)} that only nvidia-smi does; {unnamed} whose name this /proc does not know."
    )


def _latency(rounds: Sequence[Round]) -> str:
    calls = {row.name: row.ask.call for row in ROWS if row.ask is not None}
    took: dict[str, list[float]] = {}
    for each in rounds:
        for (_, name), answer in each.answers.items():
            took.setdefault(calls[name], []).append(answer.seconds)
    if not took:
        return "NVML answers nothing."
    usual = sorted(((median(seconds), call) for call, seconds in took.items()), reverse=True)
    slowest = (f"{call} {1000 * seconds:.3g} ms" for seconds, call in usual[:SHOWN_CALLS])
    return f"Slowest of {len(took)} plain NVML calls: {', '.join(slowest)}."

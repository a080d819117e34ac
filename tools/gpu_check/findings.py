"""What only a real GPU can answer, in sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tools.gpu_check import nvml, smi
from tools.gpu_check.verdicts import Round, Verdict

HELD_SECONDS = 10.0
"""Less time with a clock held down says nothing of the unit."""
TOLD_CALLS = 3
COUNTED = "gpu_clock_event_seconds_total"
HELD = "gpu_process_memory_bytes"


def findings(rounds: Sequence[Round], verdicts: Sequence[Verdict]) -> list[str]:
    """What was found out beside the table."""
    return [_throttling(verdicts), _gpm(rounds[-1]), *_pids(rounds[-1]), _latency(rounds)]


def _throttling(verdicts: Sequence[Verdict]) -> str:
    """NVML's header speaks of nanoseconds, and other exporters take its numbers for microseconds."""
    for _, _, ours, theirs, _, _ in (each for each in verdicts if each.row.metric == COUNTED):
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
    theirs = set().union(*map(smi.pids, last.boards.values())) - {""}
    unnamed = sum(sample.name == HELD and not sample.labels["name"] for sample in last.page.samples)
    yield (
        f"Processes: {len(ours & theirs)} that both name, {len(ours - theirs)} that only the exporter does, "
        f"{len(theirs - ours)} that only nvidia-smi does; {unnamed} whose name this /proc does not know."
    )


def _latency(rounds: Sequence[Round]) -> str:
    took = nvml.usual_seconds(each.answers for each in rounds)
    slowest = [f"{call} {1000 * seconds:.3g} ms" for call, seconds in list(took.items())[:TOLD_CALLS]]
    return (
        f"Slowest of {len(took)} plain NVML calls: {', '.join(slowest)}." if took else "NVML answers nothing."
    )

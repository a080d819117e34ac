"""Faults put into healthy real runs, to see how many records later they are reported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from stepwatch.backtest.replay import Prometheus, Replayed

SIGNALS = ("reward", "reward_max", "reward_min", "reward_std", "zero_std_ratio", "kl", "policy_kl", "entropy")
SIGNALS += (
    "policy_loss",
    "value_loss",
    "grad_norm",
    "response_length",
    "truncated_ratio",
    "validation_score",
)
"""What is taken over from a run; a log may call them so."""

METRICS = frozenset(f"rl_{signal}" for signal in SIGNALS)

AT = 0.6
"""The share of the run after which the fault sets in."""

LEAST = 60
"""Records of a run that is long enough for a fault to be seen."""

Values = dict[str, float]


Change = Callable[[Values, int, float], Values]
"""What a fault makes of a record: its values, since how many records it lasts, the lowest reward before."""


class Fault(NamedTuple):
    """What goes wrong, and the signal that a run must have for that."""

    name: str
    needs: str
    change: Change


def _growing(signal: str, factor: float) -> Change:
    return lambda values, ago, _: {signal: values[signal] * factor**ago}


def _rising(signal: str, each: float, most: float = math.inf) -> Change:
    return lambda values, ago, _: {signal: min(most, values[signal] + each * ago)}


def _longer(values: Values, ago: int, _: float) -> Values:
    share = min(1.0, values.get("truncated_ratio", 0) + 0.01 * ago)
    return {"response_length": values["response_length"] * 1.03**ago, "truncated_ratio": share}


def _fall(values: Values, ago: int, lowest: float) -> Values:
    part = min(1.0, ago / 50)
    return {"reward": values["reward"] * (1 - part) + lowest * part}


def _to(signal: str, value: float | None = None) -> Change:
    """To a value, or to the lowest reward so far."""
    return lambda _values, _ago, lowest: {signal: lowest if value is None else value}


def _halved(values: Values, _ago: int, _lowest: float) -> Values:
    return {"reward": values["reward"] / 2}


def _broken(_values: Values, ago: int, _lowest: float) -> Values:
    return {"grad_norm": math.nan} if ago % 3 == 0 else {}


FAULTS = (
    Fault("reward to its minimum", "reward", _to("reward")),
    Fault("reward halved", "reward", _halved),
    Fault("reward falls to its minimum over 50", "reward", _fall),
    Fault("KL x 1.1 a step", "kl", _growing("kl", 1.1)),
    Fault("KL + 0.02 a step", "kl", _rising("kl", 0.02)),
    Fault("entropy x 0.95 a step", "entropy", _growing("entropy", 0.95)),
    Fault("entropy x 1.05 a step", "entropy", _growing("entropy", 1.05)),
    Fault("length + 3 %, truncation + 0.01 a step", "response_length", _longer),
    Fault("length to 4 tokens", "response_length", _to("response_length", 4.0)),
    Fault("truncation + 0.02 a step", "truncated_ratio", _rising("truncated_ratio", 0.02, 1.0)),
    Fault("gradient norm x 1.1 a step", "grad_norm", _growing("grad_norm", 1.1)),
    Fault("NaN every third step", "grad_norm", _broken),
)


class Faulty(NamedTuple):
    """A log with a fault, and the record at which it begins."""

    fault: str
    log: Path
    begins: int


def write(prometheus: Prometheus, runs: Iterable[Replayed], folder: Path) -> Iterator[Faulty]:
    """Write each run with each fault that it can have."""
    long = [run for run in runs if len(run.steps) >= LEAST]
    for number, (run, records) in enumerate(_records(prometheus, long)):
        for kind, fault in enumerate(FAULTS):
            if sum(fault.needs in record for record in records) > LEAST / 2:
                log, begins = folder / f"{number}-{kind}.jsonl", int(AT * len(records)) + 1
                log.write_text("".join(_lines(records, run.steps, fault, begins)))
                yield Faulty(fault.name, log, begins)


def _records(prometheus: Prometheus, runs: list[Replayed]) -> Iterator[tuple[Replayed, list[Values]]]:
    """What each run logged, record by record."""
    found = {name: prometheus.records(f"max by (run) (rl_{name})") for name in SIGNALS}
    for run in runs:
        values = {name: of_runs[run.run] for name, of_runs in found.items() if run.run in of_runs}
        numbers = range(1, 1 + len(run.steps))
        yield run, [{name: each[at] for name, each in values.items() if at in each} for at in numbers]


def _lines(records: list[Values], steps: tuple[int, ...], fault: Fault, begins: int) -> Iterator[str]:
    before = (record["reward"] for record in records[: begins - 1] if "reward" in record)
    lowest = min(before, default=0.0)
    for record, (step, values) in enumerate(zip(steps, records, strict=True), 1):
        sick = record >= begins and fault.needs in values
        changed = fault.change(values, record - begins + 1, lowest) if sick else {}
        yield json.dumps({"step": step, **values, **changed}) + "\n"

"""The rules on families of curves: each mechanism at several speeds, lengths of a run and sizes of a batch.

What is healthy rises, saturates, drifts and has spikes; what is sick does one thing more. Noise is that of
the mean of so many answers, so it follows from the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.judge import real_logs
from tests.judge.test_own_runs import written

pytestmark = pytest.mark.e2e

BATCHES = {"small": 32, "large": 2048}
"""Answers whose mean is logged."""
LENGTHS = (10, 100, 1000)
LONG = 10_000  # of one family, since such a run takes seconds
AFTER = 120
"""Healthy records before something goes wrong."""
MOST_FALSE = 0.15  # warnings per 1,000 records

Values = dict[str, float]


class Healthy(NamedTuple):
    """How far a run has come after a share of its time: the levels of its signals."""

    gain: Callable[[float], float]
    length: Callable[[float], float] = lambda _: 1.0
    entropy: Callable[[float], float] = lambda done: 0.1 + 0.5 * math.exp(-3 * done)
    spikes: bool = False


HEALTHY = {
    "rises": Healthy(lambda done: 0.2 + 0.5 * done),
    "saturates": Healthy(lambda done: 0.98 - 0.7 * math.exp(-8 * done)),
    "stays": Healthy(lambda _: 0.4, entropy=lambda _: 0.5),
    "drifts": Healthy(lambda done: 0.3 + 0.2 * done, length=lambda done: 1 + 3 * done),
    "answers shorter": Healthy(lambda done: 0.3 + 0.4 * done, length=lambda done: 1 - 0.8 * done),
    "spikes": Healthy(lambda done: 0.2 + 0.5 * done, spikes=True),
}


def _records(family: Healthy, count: int, batch: int, seed: str, over: int = 0) -> Iterator[Values]:
    """A run of so many records, ``over`` (``count`` if 0) of which it takes to learn."""
    dice = Random(seed)
    for step in range(count):
        done = min(1.0, step / (over or count))
        level = family.gain(done)
        spike = family.spikes and step % 61 == 50
        yield {
            "reward": level + dice.gauss(0, math.sqrt(level * (1 - level) / batch)),
            "kl": 0.02 * done + 0.002 * math.sqrt(32 / batch) * abs(dice.gauss(0, 1)) + 5.0 * spike,
            "entropy": family.entropy(done) * dice.lognormvariate(0, 0.3 / math.sqrt(batch)),
            "response_length": 500 * family.length(done) * dice.lognormvariate(0, 1 / math.sqrt(batch)),
            "truncated_ratio": 0.01 + dice.uniform(0, 0.01),
            "grad_norm": 0.3 * dice.lognormvariate(0, 2 / math.sqrt(batch)) * (1e5 if spike else 1),
        }


Change = Callable[[Values, int], Mapping[str, float]]


def _ramp(since: int, lasts: int) -> float:
    return min(1.0, since / lasts)


def _falls(lasts: int, share: float) -> Change:
    return lambda values, since: {"reward": values["reward"] * (1 - share * _ramp(since, lasts))}


def _hacked(lasts: int) -> Change:
    """A judge that pays for length: answers grow into the limit while the reward rises."""

    def change(values: Values, since: int) -> Mapping[str, float]:
        way = _ramp(since, lasts)
        return {
            "response_length": values["response_length"] * 7**way,
            "truncated_ratio": values["truncated_ratio"] + 0.15 * way,
            "reward": values["reward"] + 0.15 * way,
        }

    return change


def _collapsed(lasts: int) -> Change:
    """Entropy is lost, and the reward gains nothing by that."""
    return lambda values, since: {"entropy": values["entropy"] * 0.01 ** _ramp(since, lasts)}


def _climbs(rate: float) -> Change:
    return lambda values, since: {"grad_norm": values["grad_norm"] * min(rate**since, 1e4)}


SICK: dict[str, tuple[Change, str, int]] = {
    **{f"reward is lost over {n}": (_falls(n, 0.95), "RewardCollapse", 20 + n) for n in (1, 20, 100)},
    **{f"a third is lost over {n}": (_falls(n, 0.35), "RewardDrop", 25 + n) for n in (1, 50, 200)},
    **{f"length pays over {n}": (_hacked(n), "LengthRunaway", 10 + n) for n in (20, 50, 200)},
    **{f"entropy is lost over {n}": (_collapsed(n), "EntropyCollapse", 40 + n) for n in (20, 100)},
    **{f"gradient times {r} a step": (_climbs(r), "GradNormHigh", n) for r, n in ((1.087, 47), (1.3, 25))},
}
"""What happens, which alert is to say so, and by how many records later."""


def _alerts(folder: Path, runs: Mapping[str, list[Values]]) -> Iterator[tuple[str, Judged]]:
    for number, records in enumerate(runs.values()):
        (folder / str(number)).mkdir()
        written(folder / str(number), records)
    logs = [folder / str(number) / "ppo.jsonl" for number in range(len(runs))]
    with real_logs.loaded(logs, Config()) as backtest:
        found = {run.files[0]: run for run in backtest.results(Progress()).runs if isinstance(run, Judged)}
    return ((name, found[str(log)]) for name, log in zip(runs, logs, strict=True))


def test_what_is_healthy_is_left_alone(tmp_path: Path) -> None:
    runs = {
        f"{name}, {count} records, {size} batch": list(_records(family, count, batch, name))
        for name, family in HEALTHY.items()
        for count in LENGTHS
        for size, batch in BATCHES.items()
    }
    runs["spikes, long"] = list(_records(HEALTHY["spikes"], LONG, 32, "spikes"))
    wrong = [
        (name, alert.alert, alert.severity, alert.first_record)
        for name, run in _alerts(tmp_path, runs)
        for alert in run.alerts
        if alert.severity != "info" and alert.alert != "RewardStagnation"
    ]
    assert [each for each in wrong if each[2] == "critical"] == []
    assert len(wrong) <= MOST_FALSE * sum(map(len, runs.values())) / 1000, wrong


def test_what_goes_wrong_is_said_whatever_the_noise(tmp_path: Path) -> None:
    runs, due = {}, {}
    for name, (change, alert, within) in SICK.items():
        for size, batch in BATCHES.items():
            records = list(_records(HEALTHY["rises"], AFTER + within + 1, batch, name, over=AFTER))
            for since, values in enumerate(records[AFTER:], 1):
                values.update(change(values, since))
            runs[key := f"{name}, {size} batch"] = records
            due[key] = alert
    for name, run in _alerts(tmp_path, runs):
        first = {alert.alert: alert.first_record for alert in reversed(run.alerts)}
        assert first.get(due[name], 0) > AFTER, (name, first)
        assert [alert for alert in run.alerts if alert.first_record <= AFTER] == [], name

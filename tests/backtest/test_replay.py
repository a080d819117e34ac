"""What is replayed is what the exporter served: every statistic, at every record."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from exporter.runs.model.run import Options
from exporter.runs.stats.catalogue import STATISTICS
from stepwatch.backtest.replay import REPEAT_SECONDS, START, write
from stepwatch.operate import logfiles
from tests.backtest.conftest import exploding_kl, log

METRICS = frozenset(statistic.metric for statistic in STATISTICS) | {"rl_reward", "rl_records_total"}
Samples = dict[str, dict[int, str]]


def _samples(path: Path, folder: Path, metrics: frozenset[str] = METRICS) -> Samples:
    (found,), _ = logfiles.logs([str(path)], folder)
    write(found, "a", metrics, Options(), folder / "samples")
    samples: Samples = {}
    for line in (folder / "samples").read_text().splitlines():
        series, value, time = line.rsplit(" ", 2)
        samples.setdefault(series, {})[int(time) - START] = value
    return samples


def test_only_what_changed_is_written_but_nothing_is_older_than_prometheus_remembers(tmp_path: Path) -> None:
    records = [{"reward": 0.5, "kl": 0.1 + step % 2} for step in range(600)]
    (times_of_best,) = (
        times
        for series, times in _samples(log(tmp_path / "a.jsonl", records), tmp_path).items()
        if series.startswith("rl_best{")
    )
    gaps = [after - before for before, after in pairwise(times_of_best)]
    assert max(gaps) == REPEAT_SECONDS
    assert len(times_of_best) < 5


def test_a_resume_ends_the_windows(tmp_path: Path) -> None:
    path = log(tmp_path / "a.jsonl", exploding_kl(30, 0))
    with path.open("a") as out:
        out.writelines(
            f"{json.dumps({'step': step, 'kl': 0.1, 'reward': 0.4 + step / 100})}\n" for step in range(20, 40)
        )
    lowest = next(
        times
        for series, times in _samples(path, tmp_path).items()
        if series.startswith('rl_min_over_steps{run="a",signal="kl"')
    )
    assert lowest[31] == "NaN"
    assert max(time for time, value in lowest.items() if value != "NaN") > 31


def test_metrics_that_no_one_asked_for_are_left_out(tmp_path: Path) -> None:
    samples = _samples(log(tmp_path / "a.jsonl", exploding_kl()), tmp_path, frozenset({"rl_reward"}))
    assert list(samples) == ['rl_reward{run="a"}']

from __future__ import annotations

import pytest

from exporter.runs.stats.catalogue import NOT_FINITE_SIGNALS
from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.judge import real_logs
from tests.judge.labels import labels

Runs = dict[str, list[Judged]]
Broken = dict[str, list[set[int]]]


@pytest.fixture(scope="module")
def judged() -> tuple[Runs, Broken]:
    """The runs of each labelled file, and the records at which each of its signals is NaN or Inf."""
    metrics = {f"rl_{signal}" for signal in NOT_FINITE_SIGNALS}
    with real_logs.loaded([log.path for log in labels()], Config(), metrics) as backtest:
        runs: Runs = {}
        for run in backtest.results(Progress()).runs:
            if isinstance(run, Judged):
                runs.setdefault(run.files[0], []).append(run)
        return runs, dict(real_logs.broken(backtest, NOT_FINITE_SIGNALS))

"""From files and a configuration to results: the whole of a backtest."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter.drawing.chart import Chart
from exporter.runs.model.raw_keys import RawRule
from exporter.runs.model.run import Options
from stepwatch.alerts.catalogue import TABLE
from stepwatch.alerts.incidents import PAIRS
from stepwatch.backtest import server
from stepwatch.backtest.charts import Draughtsman
from stepwatch.backtest.episodes import Judge, inhibitions
from stepwatch.backtest.limits import limits
from stepwatch.backtest.openmetrics_writer import Replayed
from stepwatch.backtest.panels import Drawn
from stepwatch.backtest.replay import SAMPLES, Recording, Replays, find, replay
from stepwatch.backtest.results import Judged, Results, Unjudged
from stepwatch.backtest.rules import Catalogue, catalogue, metrics
from stepwatch.backtest.server import Progress, Prometheus
from stepwatch.backtest.suggestions import Suggestion, Trial
from stepwatch.config import Config
from stepwatch.programs import programs
from stepwatch.programs.programs import Program
from stepwatch.rules.lines import subjects


@dataclass(frozen=True)
class Backtest:
    """Old runs in a Prometheus of their own, and the rules of a configuration.

    ``logs`` holds what came of each log, in the order in which they were found.
    """

    config: Config
    prometheus: Prometheus
    logs: Sequence[Replays]
    catalogue: Catalogue

    @property
    def runs(self) -> list[Replayed]:
        """The runs that can be judged."""
        return _judged(self.logs)

    def results(self, progress: Progress) -> Results:
        """Which alert would have fired for which run."""
        judge = Judge(self.prometheus, self.catalogue.rules, inhibitions(PAIRS))
        with progress("judging", len(judge.rules)) as tick:
            judged = list(judge.judge(self.runs, tick))
        return Results(tuple(self._in_order(judged)), self.catalogue.left_out)

    def suggestions(self, progress: Progress) -> tuple[Suggestion, ...]:
        """With which limits an alert would have fired for other runs."""
        known = list(limits(self.config))
        trial = Trial(self.prometheus, self.config)
        with progress("trying other limits", len(known)) as tick:
            return tuple(trial.suggestions(known, tick))

    def charts(self, results: Results, drawn: Drawn, progress: Progress) -> dict[str, tuple[Chart, ...]]:
        """What the panels show of each run, by its name."""
        draughtsman = Draughtsman(self.prometheus, drawn.of_run, subjects(TABLE))
        judged = {run.run: run for run in results.runs if isinstance(run, Judged)}
        with progress("drawing", len(self.runs)) as tick:
            found = draughtsman.charts([(run, judged[run.run]) for run in self.runs], tick)
        return {run.run: charts for run, charts in zip(self.runs, found, strict=True)}

    def _in_order(self, judged: Sequence[Judged]) -> Iterator[Judged | Unjudged]:
        verdicts = iter(judged)
        for log in self.logs:
            if isinstance(log, Unjudged):
                yield log
            else:
                yield from (next(verdicts) for _ in log)


@contextmanager
def prepared(
    places: Sequence[str],
    config: Config,
    jobs: int,
    progress: Progress,
    also: Collection[str] = (),
) -> Iterator[Backtest]:
    """Read the logs and load them into a Prometheus, with the metrics that the rules read and ``also`` these.

    Raises:
        Refused: Prometheus is not available.
    """
    rules = catalogue(config)
    prometheus, promtool = (_program(name, progress) for name in ("prometheus", "promtool"))
    wanted = metrics(rules.rules).union(also)
    with tempfile.TemporaryDirectory(prefix="stepwatch-backtest-") as scratch:
        found = find(places, config.runs.path)
        recording = Recording(wanted, Options(keys=config.signals, raw=RawRule(limit=0)), Path(scratch))
        with progress("reading", len(found.logs)) as tick:
            logs = [*found.missing, *replay(found, recording, jobs, tick)]
        samples = sorted(Path(scratch).glob(f"*{SAMPLES}"))
        records = {run.run: len(run.steps) for run in _judged(logs)}
        with server.loaded(prometheus, promtool, samples, records) as loaded:
            yield Backtest(config, loaded, logs, rules)


def _judged(logs: Iterable[Replays]) -> list[Replayed]:
    return [run for log in logs if not isinstance(log, Unjudged) for run in log]


def _program(name: str, progress: Progress) -> Program:
    return programs.find(name) or programs.obtain(name, progress.say)

"""``python -m stepwatch backtest``: which alerts old runs would have raised."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter.runs.model.run import Options
from exporter.runs.overview.charts import Chart
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.unmapped import RawRule
from exporter.runs.stats.catalogue import Own
from stepwatch.alerts.table import OWN
from stepwatch.backtest.judge import Catalogue, Judged, Results, catalogue, judge, metrics
from stepwatch.backtest.replay import (
    SAMPLES,
    Progress,
    Prometheus,
    Replayed,
    Replays,
    Unjudged,
    find,
    loaded,
    replay,
)
from stepwatch.backtest.report import DOCUMENT, PAGE, Panels, Report, charts, make, page, write
from stepwatch.backtest.suggestions import Suggestion, Trial, limits
from stepwatch.config import Config
from stepwatch.config.deployment import InContainers
from stepwatch.config.loading import load_changed
from stepwatch.config.own_alerts import FOLDER, located, looked_at
from stepwatch.rules.alerting import FOLDER as RULES_FOLDER
from stepwatch.rules.alerting import files
from stepwatch.rules.routing import inhibitions
from stepwatch.schema.errors import Refused
from stepwatch.system import programs
from stepwatch.system.terminal import Say

FAILING = {"warning": ("warning", "critical"), "critical": ("critical",)}


def backtest(options: argparse.Namespace, config: Path, say: Say) -> int:
    """Judge old runs. Returns 0; 1 if an alert of ``--fail-on`` fired; 2 if not every file was judged."""
    settings = load_changed(config, options.set)
    if options.report:
        make(options.report)  # a folder that cannot be written is reported before the work
    panels = Panels(settings) if options.report or options.format == "html" else None
    progress = Progress()
    with prepared(
        options.places, settings, options.jobs, progress, panels.metrics if panels else ()
    ) as loaded:
        results = loaded.results(progress)
        drawn = loaded.charts(results, panels, progress) if panels else {}
        suggestions = loaded.suggestions(progress) if options.suggest else None
    report = Report(results, tuple(options.set), suggestions)
    html = page(report, drawn, settings) if panels else ""
    if options.report:
        write(options.report, {PAGE: html, DOCUMENT: f"{report.json()}\n"})
    if options.format == "table":
        for line in (*report.lines(), *loaded.unlogged):
            say(line)
    else:
        say(html if options.format == "html" else report.json())
    if not results.judged or len(results.judged) < len(results.runs):
        return 2
    return int(bool(options.fail_on) and results.fired(*FAILING[options.fail_on]))


@dataclass(frozen=True)
class Backtest:
    """Old runs, by the order in which they were found, in a Prometheus of their own, and the rules."""

    config: Config
    prometheus: Prometheus
    logs: Sequence[Replays]
    catalogue: Catalogue

    @property
    def runs(self) -> list[Replayed]:
        """The runs that can be judged."""
        return _replayed(self.logs)

    @property
    def unlogged(self) -> list[str]:
        """A line for each raw key of users' alerts that no run logs."""
        logged = {key for run in self.runs for key in run.keys}
        return [
            f"No run here logs {key}, which alerts below {FOLDER} look at."
            for key in looked_at(self.config.table.own)["keys"]
            if self.runs and key not in logged
        ]

    def results(self, progress: Progress) -> Results:
        """Return which alert would have fired for which run, in the order of the logs."""
        rules = self.catalogue.rules
        with progress("judging", len(rules)) as tick:
            verdicts = iter(list(judge(self.prometheus, rules, inhibitions(), self.runs, tick)))
        found: list[Judged | Unjudged] = []
        for log in self.logs:
            found += [log] if isinstance(log, Unjudged) else [next(verdicts) for _ in log]
        return Results(tuple(found), self.catalogue.left_out)

    def suggestions(self, progress: Progress) -> tuple[Suggestion, ...]:
        """Return with which limits an alert would have fired for other runs."""
        known = list(limits(self.config))
        trial = Trial(self.prometheus, self.config)
        with progress("trying other limits", len(known)) as tick:
            return tuple(trial.suggestions(known, tick))

    def charts(self, results: Results, panels: Panels, progress: Progress) -> dict[str, tuple[Chart, ...]]:
        """Return what the panels show of each run, by its name."""
        judged = {run.run: run for run in results.judged}
        with progress("drawing", len(self.runs)) as tick:
            found = charts(self.prometheus, panels, [(run, judged[run.run]) for run in self.runs], tick)
        return {run.run: drawn for run, drawn in zip(self.runs, found, strict=True)}


@contextmanager
def prepared(
    paths: Sequence[str], config: Config, jobs: int, progress: Progress, also: Collection[str] = ()
) -> Iterator[Backtest]:
    """Read the logs into a Prometheus, with the metrics of the rules and ``also`` these. Raises Refused."""
    rules = catalogue(config)
    prometheus, promtool = (
        programs.find(name) or programs.obtain(name, progress.say) for name in ("prometheus", "promtool")
    )
    wanted = metrics(rules.rules).union(also)
    with tempfile.TemporaryDirectory(prefix="stepwatch-backtest-") as scratch:
        if config.table.own:
            _check_own(config, promtool.path, Path(scratch) / "own.yml")
        found = find(paths, config.runs.path)
        own = Own.read(looked_at(config.table.own))
        options = Options(keys=keys_of(config.signals), raw=RawRule(limit=0), own=own)
        with progress("reading", len(found.found)) as tick:
            logs = [*found.missing, *replay(found, wanted, options, Path(scratch), jobs=jobs, tick=tick)]
        samples = sorted(Path(scratch).glob(f"*{SAMPLES}"))
        records = {run.run: len(run.steps) for run in _replayed(logs)}
        with loaded(prometheus, promtool, samples, records) as holding:
            yield Backtest(config, holding, logs, rules)


def _check_own(config: Config, promtool: Path, file: Path) -> None:
    """Have promtool judge the rules of users' alerts. Raises Refused with their places."""
    rules = files(config, InContainers(), {})[RULES_FOLDER / f"{OWN}.yml"]
    file.write_bytes(rules)
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    if done.returncode:
        words = located(done.stdout + done.stderr, rules, config.table.own)
        lines = (line for line in words.splitlines() if line.startswith(FOLDER))
        raise Refused("\n".join(dict.fromkeys(lines)))


def _replayed(logs: Sequence[Replays]) -> list[Replayed]:
    return [run for log in logs if not isinstance(log, Unjudged) for run in log]

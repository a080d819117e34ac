"""Rules judged by a Prometheus that holds the runs: which fired for which run, when, and at what value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stepwatch.backtest.episodes import Episode, Inhibition, episodes, inhibited
from stepwatch.backtest.openmetrics_writer import START, Replayed
from stepwatch.backtest.progress import Tick
from stepwatch.backtest.results import Alert, Judged
from stepwatch.backtest.rules import Rule
from stepwatch.backtest.server import NO_RUN, Prometheus, side_by_side


@dataclass(frozen=True)
class Judge:
    """Asks each rule's own expression at every record of every run."""

    prometheus: Prometheus
    rules: Sequence[Rule]
    inhibitions: Sequence[Inhibition]

    def judge(self, runs: Sequence[Replayed], tick: Tick) -> Iterator[Judged]:
        """The verdict on each run; ``tick`` is called for each rule."""
        asked = (rule.expression for rule in self.rules)
        held = list(side_by_side(self.prometheus.records, asked, tick))
        for run in runs:
            yield self._run(
                run,
                [
                    found.get(run.run, {}) if rule.judges(run.run) else {}
                    for rule, found in zip(self.rules, held, strict=True)
                ],
            )

    def _run(self, run: Replayed, held: Sequence[Iterable[int]]) -> Judged:
        """``held``: the records at which each rule holds."""
        rules = zip(self.rules, held, strict=True)
        found = [episode for rule, records in rules for episode in episodes(rule, records)]
        found.sort(key=lambda episode: episode.first)
        alerts = tuple(self._alert(run, episode, found) for episode in found)
        first, last = (min(run.steps), max(run.steps)) if run.steps else (None, None)
        return Judged(run.run, run.files, run.format, len(run.steps), first, last, run.signals, alerts)

    def _alert(self, run: Replayed, episode: Episode, others: Sequence[Episode]) -> Alert:
        value, threshold = self._measured(run.run, episode)
        return Alert(
            episode.rule.alert,
            episode.rule.severity,
            episode.first,
            episode.last,
            run.steps[episode.first - 1],
            run.steps[episode.last - 1],
            value,
            threshold,
            inhibited(episode, others, self.inhibitions),
        )

    def _measured(self, run: str, episode: Episode) -> tuple[float | None, float | None]:
        """What the rule looked at when it began to hold, and the limit that it passed."""
        time = START + episode.first
        for way in episode.rule.ways:
            if run in self.prometheus.at(way.condition, time):
                return self._at(way.value, run, time), self._at(way.limit, run, time)
        return None, None

    def _at(self, expression: str, run: str, time: int) -> float | None:
        found = self.prometheus.at(expression, time)
        return found.get(run, found.get(NO_RUN))

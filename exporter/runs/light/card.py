"""A run as the pages show it: how bad it is, and what is to be said about that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from exporter.drawing.severity import SEVERITIES, rank
from exporter.drawing.tally import tally
from exporter.runs.light import formatting
from exporter.runs.overview.models import Firing, Health, RunSummary

ENDED_BADLY = {
    "failed": ("critical", "Its log holds the error that ended it."),
    "vanished": ("critical", "Its process is gone before the end."),
    "stopped": ("warning", "It is silent, and nothing says how it ended."),
}
"""States that are bad whether or not Prometheus could report it: how bad, and why."""


_OTHERS = re.compile(r"; \w+ fires")
"""What a message says of the run's other alerts, which a page shows itself."""


@dataclass(frozen=True)
class Card:
    """A run, and how long ago its last step was, in words: as long as they are the same nothing changed."""

    run: RunSummary
    age: str

    @classmethod
    def of(cls, run: RunSummary) -> Card:
        """The card of a run as it is now."""
        age = "" if run.age_seconds is None else formatting.span(run.age_seconds)
        return cls(replace(run, age_seconds=None), age)

    @property
    def calm(self) -> bool:
        """No one need look at a run that came to its end."""
        return self.run.state == "finished"

    @property
    def severity(self) -> str:
        """The worst that is to be said of it; empty if nothing is."""
        if self.calm:
            return ""
        levels = {alert.severity for alert in self.run.firing} | {health.state for health in self.run.healths}
        levels.add(ENDED_BADLY.get(self.run.state, ("", ""))[0])
        return next((severity for severity in SEVERITIES if severity in levels), "")

    @property
    def ending(self) -> str:
        """How it came to a bad end, in words; empty if it did not, or an alert reports it."""
        reported = any(alert.name == f"Run{self.run.state.title()}" for alert in self.run.firing)
        return "" if reported else ENDED_BADLY.get(self.run.state, ("", ""))[1]

    @property
    def firing(self) -> list[Firing]:
        """Its alerts, the worst first; those that outlast a run that came to its end are no news any more."""
        news = (alert for alert in self.run.firing if not self.calm or alert.severity == "info")
        return sorted(news, key=lambda alert: (rank(alert.severity), alert.name))

    def detailed(self, *, whole: bool) -> list[Firing]:
        """Those shown in full: the worst, or ``whole`` all that no worse one of their topic mutes."""
        if whole:
            return [alert for alert in self.firing if not self._is_muted(alert)]
        worst = min((rank(alert.severity) for alert in self.firing), default=0)
        return [alert for alert in self.firing if rank(alert.severity) == worst]

    def named(self, *, whole: bool) -> str:
        """The names of all others."""
        detailed = {alert.name for alert in self.detailed(whole=whole)}
        others = (alert for alert in self.firing if alert.name not in detailed)
        silent = " (silenced)"
        return ", ".join(dict.fromkeys(f"{each.name}{silent * bool(each.silenced_until)}" for each in others))

    def _is_muted(self, alert: Firing) -> bool:
        worse = (other for other in self.firing if rank(other.severity) < rank(alert.severity))
        return any(other.topic == alert.topic for other in worse)

    @property
    def diagnoses(self) -> list[Health]:
        """Signals out of range that none of its alerts has reported."""
        bad = [health for health in self.run.healths if health.state in SEVERITIES and not self.calm]
        said = [alert.summary for alert in self.run.firing if alert.summary]
        new = (health for health in bad if not any(summary in health.diagnosis for summary in said))
        return sorted(new, key=lambda health: rank(health.state))


def description(alert: Firing) -> str:
    """What the alert says of itself."""
    return _OTHERS.sub("", alert.description)


def ordered(runs: Iterable[RunSummary]) -> list[Card]:
    """The worst first, then what goes well, then what is finished, the latest of these first."""
    cards = [(Card.of(run), run.age_seconds or 0.0) for run in runs]
    cards.sort(key=lambda each: _place(*each))
    return [card for card, _ in cards]


def _place(card: Card, age: float) -> tuple[bool, int, float, str]:
    return card.calm, rank(card.severity), age * card.calm, card.run.name


def counted(cards: Iterable[Card]) -> str:
    """How many there are of each kind, in words."""
    levels = [("finished" if card.calm else card.severity) for card in cards]
    kinds = {
        "critical": levels.count("critical"),
        "with a warning": levels.count("warning"),
        "fine": levels.count("info") + levels.count(""),
        "finished": levels.count("finished"),
    }
    return tally("run", kinds)

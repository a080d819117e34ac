"""The generated rules, as far as an old log can tell whether they would have fired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from exporter.runs.exposition import FAMILIES
from stepwatch.backtest.expression import counts_time, reads, signals, ways

RULES = PurePosixPath("prometheus/generated/rules")

STATE = "rl_run_state"
"""Not replayed: every run is taken to go on, as it did when its records came."""

_TOLD = frozenset(family.name for family in FAMILIES)


@dataclass(frozen=True)
class Rule:
    """An alert rule about what a run logs."""

    alert: str
    severity: str
    topic: str
    expression: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its alerts but for the run, as routing sees them."""
        return {"alertname": self.alert, "severity": self.severity, "topic": self.topic}


@dataclass(frozen=True)
class Catalogue:
    """The rules that can be judged, and the names of the alerts that cannot, in the order of the files."""

    rules: tuple[Rule, ...]
    left_out: tuple[str, ...]


def catalogue(files: Mapping[PurePosixPath, bytes]) -> Catalogue:
    """The alert rules of rendered files."""
    found = list(alerts(files))
    judged = tuple(_rule(each) for each in found if _is_told(each))
    names = {rule.alert for rule in judged}
    left = dict.fromkeys(each["alert"] for each in found if each["alert"] not in names)
    return Catalogue(judged, tuple(left))


def alerts(files: Mapping[PurePosixPath, bytes]) -> Iterator[dict[str, Any]]:
    """Every alert rule as its file has it."""
    for path, content in sorted(files.items()):
        if path.parent == RULES:
            for group in yaml.load(content, Loader=yaml.CSafeLoader)["groups"]:
                yield from (rule for rule in group["rules"] if "alert" in rule)


def _is_told(rule: Mapping[str, Any]) -> bool:
    """Do the records of a run alone decide it?"""
    expression = rule["expr"]
    waits = "for" in rule or counts_time(expression)
    return not waits and bool(metrics([expression])) and reads(expression) <= _TOLD


def _rule(rule: Mapping[str, Any]) -> Rule:
    labels = rule["labels"]
    return Rule(rule["alert"], labels["severity"], labels["topic"], rule["expr"])


def metrics(expressions: Iterable[str]) -> frozenset[str]:
    """The metrics that must be replayed for these expressions."""
    return frozenset().union(*map(reads, expressions)) - {STATE}


def subjects(rules: Sequence[Rule]) -> dict[str, frozenset[str]]:
    """The signals that each alert compares with a limit first, by its name."""
    found: dict[str, frozenset[str]] = {}
    for rule in rules:
        compared = [signals(way.value) for way in ways(rule.expression)]
        found[rule.alert] = found.get(rule.alert, frozenset()).union(*compared)
    return found

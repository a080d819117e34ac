"""promtool's unit tests, written from Python: one file and one process for many groups."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.rules.rendered import whole

INTERVAL = 5
"""Seconds between two scrapes, and between two evaluations."""

JsonObject = dict[str, Any]


class Moment(NamedTuple):
    """What fires at a time: the labels of each alert, by alert name. Seconds; keep off multiples of 5."""

    at: float
    alerts: Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class Group:
    """Series over time, and what must fire when.

    Attributes:
        name: What promtool says when the group fails.
        series: Samples in promtool's notation, by selector.
        moments: When to look.
        values: The value of an expression at a time, by both.
        interval: Seconds between two samples, and between two evaluations.
    """

    name: str
    series: Mapping[str, str]
    moments: Sequence[Moment]
    values: Mapping[tuple[str, float], float] = field(default_factory=dict)
    interval: int = INTERVAL

    @property
    def evaluations(self) -> int:
        """How often the rules are evaluated, which is what takes the time."""
        return int(max(moment.at for moment in self.moments) // self.interval) + 1

    def about(self, alert: str) -> Group:
        """The group with what this alert does, and no other."""
        return replace(self, moments=[Moment(at, {alert: alerts[alert]}) for at, alerts in self.moments])

    def of_each(self, alert: str, names: Sequence[str]) -> Group:
        """The group with what this alert does, expected of every alert of these names."""
        moments = [Moment(at, dict.fromkeys(names, alerts[alert])) for at, alerts in self.moments]
        values = {
            (expression.replace(f'"{alert}"', f'"{name}"'), at): value
            for (expression, at), value in self.values.items()
            for name in names
        }
        return replace(self, moments=moments, values=values)

    def document(self) -> JsonObject:
        """The group as promtool reads it."""
        return {
            "name": self.name,
            "interval": f"{self.interval}s",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "alert_rule_test": [
                {
                    "eval_time": _time(at),
                    "alertname": alert,
                    "exp_alerts": [{"exp_labels": dict(labels)} for labels in fired],
                }
                for at, alerts in self.moments
                for alert, fired in alerts.items()
            ],
            "promql_expr_test": [
                {
                    "expr": expression,
                    "eval_time": _time(at),
                    "exp_samples": [{"labels": "{}", "value": value}],
                }
                for (expression, at), value in self.values.items()
            ],
        }


def _time(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def silently(rules: Iterable[JsonObject]) -> list[JsonObject]:
    """The rules without annotations, so that a reworded message breaks no test of behaviour."""
    return [{key: value for key, value in rule.items() if key != "annotations"} for rule in rules]


def write(folder: Path, name: str, rules: Sequence[JsonObject], groups: Iterable[Group]) -> Path:
    """Write rules and groups, all of one interval, as promtool's files; returns the one to test."""
    groups = list(groups)
    (interval,) = {group.interval for group in groups}
    document = {"groups": [{"name": name, "rules": list(rules)}]}
    (folder / f"{name}.rules.yml").write_text(json.dumps(document))
    test = {
        "rule_files": [f"{name}.rules.yml"],
        "evaluation_interval": f"{interval}s",
        "tests": [group.document() for group in groups],
    }
    path = folder / f"{name}.test.yml"
    path.write_text(json.dumps(test, ensure_ascii=False))
    return path


def check(tool: Path, *files: Path) -> None:
    """Fail unless promtool finds all as expected."""
    code, said = run(tool, *files)
    assert code == 0, "\n".join(_differences(said)) or said


def run(tool: Path, *files: Path) -> tuple[int, str]:
    """Let promtool test the rules; returns its exit code and all that it said, file by file."""
    command = [tool, "test", "rules", *files]
    # Memory that is freed at once costs it a quarter of its time.
    env = {**os.environ, "GOGC": "400"}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


_FAILED_RULE = re.compile(r"^\s*rule: (\w+), time:", re.MULTILINE)
_UNEXPECTED = re.compile(r"^\s*(?:alertname: |expr: .*alertname=\\\")(\w+)", re.MULTILINE)


def noticed(
    tool: Path,
    folder: Path,
    group: Group,
    rules: Mapping[str, Sequence[JsonObject]],
    alert: JsonObject,
) -> set[str]:
    """Those of the rules, each put in the place of an alert's, with which the group is not as expected.

    ``rules`` are by any word, which is their name for the time being: so one process loads the series once
    for all of them, behind the limits of the alert. A rule that fails ends a test for all, which then is
    begun without it.
    """
    failed: set[str] = set()
    while left := [word for word in rules if word not in failed]:
        every = silently([*whole(alert)[:-1], *(rule for word in left for rule in rules[word])])
        _, said = run(tool, write(folder, "several", every, [group.of_each(alert["alert"], left)]))
        if not (broken := set(_FAILED_RULE.findall(said))):
            return failed | set(_UNEXPECTED.findall(said))
        failed |= broken
    return failed


_BLOCK = re.compile(
    r"name: ([^\n]*),\n\s*alertname: (\S+), time: (\S+),\s*"
    r"exp:\[(.*?)(?:\n\s*)?\],\s*got:\[(.*?)(?:\n\s*)?\]\n",
    re.DOTALL,
)
_LABELS = re.compile(r"Labels:(\{.*\})")


def _differences(said: str) -> Iterator[str]:
    """A line for each alert that is missing or too many; promtool shows all expected, and all found."""
    for group, alert, time, expected, got in _BLOCK.findall(said):
        wanted, found = (set(_LABELS.findall(part)) for part in (expected, got))
        yield from (f"{group}: {alert} does not fire at {time} for {each}" for each in sorted(wanted - found))
        yield from (f"{group}: {alert} fires at {time} for {each}" for each in sorted(found - wanted))


class Alert(NamedTuple):
    """An alert as promtool saw it."""

    labels: dict[str, str]
    annotations: dict[str, str]


_GOT = re.compile(r"Labels:(\{.*\})\n\s*Annotations:(\{.*\}),?\n")
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def seen(tool: Path, *files: Path) -> list[Alert]:
    """What fires in groups that expect nothing to: promtool shows each alert that it did not expect."""
    _, said = run(tool, *files)
    return [Alert(_pairs(labels), _pairs(annotations)) for labels, annotations in _GOT.findall(said)]


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(value) for name, value in _PAIR.findall(text)}

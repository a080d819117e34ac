"""A limit has one home: what config.yaml says of it reaches every reader of it, and no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest

from stepwatch.alerts.table import BLOCKS, TABLE
from stepwatch.config import Config
from stepwatch.config.deployment import InContainers
from stepwatch.render.generator import render_all
from stepwatch.render.panels import FILE
from stepwatch.rules import lines
from stepwatch.rules.alerting import rules
from stepwatch.rules.messages import LIMIT
from stepwatch.system.environment import CHECKOUT
from tests.grafana.queries import panels_of

ON: Mapping[str, Any] = {name: {"enabled": True} for name in BLOCKS}


def _changed(key: str, value: object) -> Config:
    """The configuration with all alerts on, and this value."""
    block, *inside, last = key.split(".")
    own: Any = {last: value}
    for each in reversed(inside):
        own = {each: own}
    return Config.model_validate({"alerts": {**ON, block: {"enabled": True, **own}}})


def _fires(config: Config) -> dict[str, list[Any]]:
    """When each alert fires, and the limits with which it compares."""
    found: dict[str, list[Any]] = {}
    for rule in rules(config, InContainers(), TABLE):
        name = rule.get("alert") or rule.get("labels", {}).get("alert")
        found.setdefault(name, []).append((rule["expr"], rule.get("for")))
    return found


def _different(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The keys under which two mappings differ."""
    return {key for key in {*before, *now} if before.get(key) != now.get(key)}


@pytest.mark.parametrize(
    ("key", "value", "alerts"),
    [
        ("KL.warning.stddevs", 4, {"KLHigh"}),
        ("KL.critical.drop_ratio", 0.4, {"KLExplosion"}),
        ("EntropyExplosion.warning.times_start", 3, {"EntropyExplosion"}),
        ("GPUXid.critical", [79], {"GPUXid"}),
        ("GPULost.for", "1m", {"GPULost"}),
        ("DiskLow.enough", "3GB", {"DiskLow"}),
    ],
)
def test_a_limit_changes_its_alert_and_no_other(key: str, value: object, alerts: set[str]) -> None:
    before = Config.model_validate({"alerts": ON})
    assert _different(_fires(before), _fires(_changed(key, value))) == alerts


def test_lines_of_a_signal_differ_in_name_or_severity() -> None:
    optional = {
        "KL": {"warning": {"above": 0.1}, "critical": {"above": 15}},
        "Reward": {"warning": {"below_mean_ratio": 0.2}, "critical": {"below_mean_ratio": 0.4}},
        "GradNormHigh": {"warning": {"above": 10}},
        "LengthRunaway": {"warning": {"above": 4000}},
    }
    found = lines.lines(Config.model_validate({"alerts": optional}), TABLE)
    names = [(line.signal, line.name, line.severity) for line in found]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("key", "value", "drawn"),
    [
        ("KL.warning.above_start", 0.25, {"page", "training"}),
        ("GPUHot.margin", 7, {"gpu"}),
        ("Stalled.silence", "20m", {"training"}),
        ("Restarting.restarts", 1, set()),
    ],
)
def test_a_limit_moves_its_line_wherever_it_is_drawn(key: str, value: object, drawn: set[str]) -> None:
    before = Config.model_validate({"alerts": ON})
    assert _different(_drawn(before), _drawn(_changed(key, value))) == drawn


def _drawn(config: Config) -> dict[str, set[str]]:
    """What the light page and each dashboard draw as limits: PromQL, or a number that colours."""
    files = render_all(config, CHECKOUT, lambda _: InContainers(), ("grafana", "exporter"))
    page = json.loads(files[FILE])["panels"]
    found = {"page": {limit["promql"] for panel in page for limit in panel["limits"]}}
    for path, text in files.items():
        if path.parent == PurePosixPath("grafana/generated/dashboards"):
            found[path.stem] = {
                json.dumps([each["targets"], each["fieldConfig"]["defaults"]["thresholds"]]).replace("\\", "")
                for each in panels_of(json.loads(text))
            }
    for rule in rules(config, InContainers(), TABLE):
        if rule.get("record") == LIMIT and "condition" in rule["labels"]:  # is drawn where it is asked for
            known = ",".join(
                f'{label}="{rule["labels"][label]}"' for label in ("alert", "severity", "condition")
            )
            for drawn in found.values():
                drawn |= {f"{known}: {rule['expr']}" for text in list(drawn) if known in text}
    return found

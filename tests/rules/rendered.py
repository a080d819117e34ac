"""Rule files as generate.py renders them for a configuration."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from stepwatch.config.deployment import InContainers
from stepwatch.config.models import Alerts, Config
from stepwatch.config.yaml_document import LOADER
from stepwatch.render.generator import ALL_SERVICES, render_all
from stepwatch.rules.messages import CODE_INFO, LIMIT

CHECKOUT = Path(__file__).resolve().parents[2]

RULES = PurePosixPath("prometheus/generated/rules")

EVERYTHING: dict[str, Any] = {
    "alerts": {
        **{name: {"enabled": True} for name, _ in Alerts()},
        "Reward": {"warning": {"below_mean_ratio": 0.25}, "critical": {"below_mean_ratio": 0.5}},
        "KL": {"warning": {"above": 16}, "critical": {"above": 32}},
        "KLSequence": {"warning": {"above": 1024}},
        "LengthRunaway": {"warning": {"above": 2048}},
        "GradNormHigh": {"warning": {"above": 64}},
    }
}
"""The default configuration with what is off by default switched on."""


def config(settings: Mapping[str, Any] = EVERYTHING) -> Config:
    """The configuration that config.yaml with these settings is."""
    return Config.model_validate(settings)


@functools.cache
def _files(settings: str, services: Collection[str] = ALL_SERVICES) -> dict[PurePosixPath, bytes]:
    return render_all(config(json.loads(settings)), CHECKOUT, lambda _: InContainers(), services)


@functools.cache
def _rules(group: str, settings: str) -> list[dict[str, Any]]:
    (only,) = yaml.load(_files(settings, ("prometheus",))[RULES / f"{group}.yml"], LOADER)["groups"]
    return list(only["rules"])


def recorded(group: str) -> list[dict[str, Any]]:
    """The rules of a group that record what others may ask for."""
    return [rule for rule in _rules(group, json.dumps(EVERYTHING)) if "record" in rule]


def looked_up(
    rule: Mapping[str, Any], records: Iterable[Mapping[str, Any]], series: Iterable[str]
) -> list[Mapping[str, Any]]:
    """Return those of the records that an alert and its texts look up where there are these series.

    All others would take most of the time: promtool evaluates each at each moment.
    """
    said, there = " ".join((rule["expr"], *rule["annotations"].values())), " ".join(series)
    return [
        each
        for each in records
        if each["record"] in said
        and (each["record"] != LIMIT or _is_of(rule, each))
        and (each["record"] != CODE_INFO or _is_asked(each["labels"], said, there))
    ]


def _is_of(rule: Mapping[str, Any], limit: Mapping[str, Any]) -> bool:
    about = {"alert": rule["alert"], "severity": rule["labels"]["severity"]}
    return about.items() <= limit["labels"].items()


@functools.cache
def _limits(settings: str) -> list[dict[str, Any]]:
    every = (rule for group in groups() for rule in _rules(group, settings))
    return [rule for rule in every if rule.get("record") == LIMIT]


def whole(rule: dict[str, Any], settings: Mapping[str, Any] = EVERYTHING) -> list[dict[str, Any]]:
    """Return an alert behind the rules of the limits with which it compares."""
    limits = _limits(json.dumps(settings)) if LIMIT in rule["expr"] else []
    return [*(limit for limit in limits if _is_of(rule, limit)), rule]


def _is_asked(labels: Mapping[str, str], said: str, there: str) -> bool:
    """Whether a text looks up this kind of code and a series has it; one that is a value may be any."""
    ((kind, code),) = ((name, each) for name, each in labels.items() if name not in ("meaning", "action"))
    return kind in said and (f'{kind}="{code}"' in there or f'{kind}="' not in there)


def files(settings: Mapping[str, Any] = EVERYTHING) -> dict[PurePosixPath, bytes]:
    """Every generated file; ``settings`` is what config.yaml holds."""
    return _files(json.dumps(settings))


def groups() -> list[str]:
    """The name of every group of rules; each has a file of that name."""
    found = _files(json.dumps(EVERYTHING), ("prometheus",))
    return [path.stem for path in found if path.parent == RULES]


def rules(group: str, settings: Mapping[str, Any] = EVERYTHING) -> list[dict[str, Any]]:
    """The alert rules of a group, such as `rl`."""
    return [rule for rule in _rules(group, json.dumps(settings)) if "alert" in rule]


def rule(alert: str, severity: str, group: str = "rl") -> dict[str, Any]:
    """The one rule of a group with this name and severity, with the default limits."""
    (found,) = named(rules(group), alert, severity)
    return found


def named(rules: list[dict[str, Any]], alert: str, severity: str) -> list[dict[str, Any]]:
    """Those of the rules that have this name and severity."""
    return [rule for rule in rules if (rule["alert"], rule["labels"]["severity"]) == (alert, severity)]

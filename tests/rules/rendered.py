"""Rule files as generate.py renders them for a configuration."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from stepwatch import annotations, promql, render
from stepwatch.config.models import Config

CHECKOUT = Path(__file__).resolve().parents[2]

RULES = PurePosixPath("prometheus/generated/rules")

EVERYTHING = {"alerts": {"RunFinished": {"enabled": True}}}
"""The default configuration with what is off by default switched on."""


@functools.cache
def _files(settings: str) -> dict[PurePosixPath, bytes]:
    config = Config.model_validate_json(settings)
    return render.render(CHECKOUT, {"config": config, "promql": promql, "annotations": annotations})


@functools.cache
def _rules(group: str, settings: str) -> list[dict[str, Any]]:
    (only,) = yaml.safe_load(_files(settings)[RULES / f"{group}.yml"])["groups"]
    return list(only["rules"])


def files(settings: Mapping[str, Any] = EVERYTHING) -> dict[PurePosixPath, bytes]:
    """Every generated file; ``settings`` is what config.yaml holds."""
    return _files(json.dumps(settings))


def rules(group: str, settings: Mapping[str, Any] = EVERYTHING) -> list[dict[str, Any]]:
    """The rules of a group (`rl`, `stack`)."""
    return list(_rules(group, json.dumps(settings)))


def rule(alert: str, severity: str) -> dict[str, Any]:
    """The one rule about runs with this name and severity, with the default limits."""
    (found,) = named(rules("rl"), alert, severity)
    return found


def named(rules: list[dict[str, Any]], alert: str, severity: str) -> list[dict[str, Any]]:
    """Those of the rules that have this name and severity."""
    return [rule for rule in rules if (rule["alert"], rule["labels"]["severity"]) == (alert, severity)]

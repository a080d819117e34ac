"""Dashboards: panels with their units and what they are made of, and the queries of *Tutorial*."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.parity.product import rendered

METRIC = re.compile(r"\b(up|(?:rl|gpu|node|ray|vllm|sglang|verl|stepwatch)_[a-z0-9_:]*)\b(?=[{\[)\s]|$)")


def panels() -> Iterator[str]:
    """Each panel of each dashboard, with its type, unit and metrics."""
    for name, dashboard in _dashboards():
        variables = [each["name"] for each in dashboard.get("templating", {}).get("list", ())]
        yield f"{name}: {dashboard['title']}, uid {dashboard['uid']}, variables {' '.join(sorted(variables))}"
        for panel in _panels(dashboard["panels"]):
            queries = [target.get("expr", "") for target in panel.get("targets", ())]
            used = sorted({metric for query in queries for metric in METRIC.findall(query)})
            unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "-")
            yield f"{name}: {panel['type']} {panel.get('title', '')!r} {unit}: {' '.join(used)}"


def tutorial() -> Iterator[str]:
    """The charts of tutorials, with their queries."""
    for name, dashboard in _dashboards():
        if name == "tutorial":
            for panel in _panels(dashboard["panels"]):
                yield f"{panel['type']} {panel.get('title', '')!r}"
                yield from (f"  {' '.join(target['expr'].split())}" for target in panel.get("targets", ()))


def _dashboards() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(rendered().glob("grafana/generated/dashboards/*.json")):
        yield file.stem, json.loads(file.read_text())


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        if panel["type"] != "row":
            yield panel
        yield from _panels(panel.get("panels", []))

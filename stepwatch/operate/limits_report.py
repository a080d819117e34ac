"""``python -m stepwatch alerts``: each alert with its limits in effect, and where they are set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.logs.names import nearest
from exporter.runs.serve.endpoints import unknown
from stepwatch.alerts.alert import Alert as Entry
from stepwatch.config import Config, load, own_alerts
from stepwatch.config.models import DEMO
from stepwatch.config.reference import scalar
from stepwatch.schema.errors import KeyPath, spell
from stepwatch.schema.scalars import Duration, Size, fits
from stepwatch.schema.section import Block
from stepwatch.services import health_report
from stepwatch.system import http_client
from stepwatch.system.environment import RESOURCES
from stepwatch.system.terminal import Say, table

HEADINGS = ("alert", "severity", "limit", "value", "unit", "from")


def unmatched(config: Config) -> list[str]:
    """A remark on each override that matches no run, and each raw key that no run logs.

    None while not all runs are known.
    """
    page = http_client.read(f"http://{config.address('exporter')}/metrics") or ""
    known = health_report.read_runs(page)
    if not known or http_client.metric(page, "stepwatch_unread_bytes"):
        return []
    overrides = [
        f"overrides[{number}].runs: {override.runs} matches no known run. Similar names: "
        f"{', '.join(nearest(override.runs, known))}."
        for number, override in enumerate(config.overrides)
        if override not in DEMO and not any(fits(override.runs, name) for name in known)
    ]
    logged = health_report.raw_keys(page)
    return overrides + [
        f"{own_alerts.FOLDER}: no known run logs {key}. Similar keys: "
        f"{', '.join(nearest(key, logged)) or 'none'}."
        for key in own_alerts.looked_at(config.table.own)["keys"]
        if key not in logged
    ]


class Limit(NamedTuple):
    """A key below `alerts`, its value and unit, and which of three places it is from."""

    key: str
    value: Any
    unit: str
    origin: str


@dataclass(frozen=True)
class Alert:
    """An alert with its limits; of one that is off, the key that switches it off."""

    name: str
    severity: str
    enabled: bool
    limits: tuple[Limit, ...]


def alerts(config: Path, run: str | None, form: str, say: Say) -> int:
    """Print the limits in effect for a run, or those without overrides. Returns 0. Raises ``Refused``."""
    settings = load(config)
    found = list(effective(settings, run, config.name))
    names = None if run is None else health_report.known_runs(settings.address("exporter"))
    known = None if names is None else run in names
    if form == "json":
        plain = {"run": run, "known": known, "alerts": [_plain(alert) for alert in found]}
        say(json.dumps(plain, ensure_ascii=False, indent=2))
        return 0
    if run is not None and names is not None and not known:
        say(f"{unknown(run, names)} A run of that name would have these limits:\n")
    for line in table([HEADINGS, *(row for alert in found for row in _rows(alert))]):
        say(line)
    runbook = settings.links.runbook
    say(f"\nEach built-in alert has a heading in {runbook if '://' in runbook else RESOURCES / runbook}")
    return 0


def effective(config: Config, run: str | None, file: str) -> Iterator[Alert]:
    """Yield each alert with its limits in effect; ``file`` names the configuration."""
    for alert in config.table.alerts:
        name = alert.block.__name__
        block = config.alerts.block(name)
        if run is not None and not block.about_runs:
            continue
        origins: dict[KeyPath, str] = {}
        if run is not None and (found := config.override(name, run)):
            number, override = found
            origin = "the demo" if override in DEMO else f"overrides[{number}] `{override.runs}`"
            origins = dict.fromkeys(_leaves(override.alerts[name]), origin)
            block = override.over(name, block)
        yield _in_force(alert, block, file, origins)


def _in_force(alert: Entry, block: Block, file: str, origins: dict[KeyPath, str]) -> Alert:
    """The alert with its limits, or with the key that switches it off."""
    name, values, defaults = alert.block.__name__, _leaves(block.plain()), _leaves(alert.block().plain())
    if values["enabled",]:
        off = next(((key,) for key in alert.switches if values.get((key,), "") is None), None)
    else:
        off = ("enabled",)
    own = [key for key in values if spell(key) in alert.keys or key in (("severity",), ("for",))]
    limits = []
    for key in [off] if off else own or [("enabled",)]:
        usual = "default" if key in defaults and defaults[key] == values[key] else file
        full = spell(("alerts", name, *key))
        limits.append(Limit(full, values[key], alert.unit_of(spell(key)), origins.get(key, usual)))
    return Alert(alert.name, alert.severity or values["severity",], not off, tuple(limits))


def _leaves(plain: dict[str, Any], above: KeyPath = ()) -> dict[KeyPath, Any]:
    """The values of a mapping of mappings, by key."""
    found: dict[KeyPath, Any] = {}
    for key, value in plain.items():
        found |= _leaves(value, (*above, key)) if isinstance(value, dict) else {(*above, key): value}
    return found


def _rows(alert: Alert) -> Iterator[tuple[str, ...]]:
    for limit in alert.limits:
        value, unit = (scalar(limit.value), limit.unit) if alert.enabled else ("off", "")
        yield alert.name, alert.severity, limit.key, value, unit, limit.origin


def _plain(alert: Alert) -> dict[str, Any]:
    limits = {
        limit.key: {
            "value": str(limit.value) if isinstance(limit.value, Duration | Size) else limit.value,
            "unit": limit.unit,
            "from": limit.origin,
        }
        for limit in alert.limits
    }
    return {"alert": alert.name, "severity": alert.severity, "enabled": alert.enabled, "limits": limits}

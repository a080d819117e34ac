"""``python -m stepwatch alerts``: each alert with the limits that hold, and where these are from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stepwatch.config import Config, Duration, Size, load
from stepwatch.config.block import Block
from stepwatch.config.errors import KeyPath, spell
from stepwatch.config.overrides import DEMO
from stepwatch.tables import Say, table

HEADINGS = ("alert", "severity", "limit", "value", "from")
DEFAULT = "default"
OFF = "off"
SEVERITIES = ("warning", "critical", "info")


class Limit(NamedTuple):
    """A key below `alerts`, its value, and which of three places it is from."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Alert:
    """An alert with its limits; of one that is off, the key that switches it off."""

    name: str
    severity: str
    enabled: bool
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class Origins:
    """Tells where a value is from: an override and the keys that it says, else the file or the defaults."""

    file: str
    override: str = ""
    said: Collection[KeyPath] = ()

    def of(self, key: KeyPath, value: Any, defaults: dict[KeyPath, Any]) -> str:
        """What the file says as the default has it counts as the default."""
        if key in self.said:
            return self.override
        return DEFAULT if key in defaults and defaults[key] == value else self.file


def alerts(config: Path, run: str | None, form: str, say: Say) -> int:
    """Tell which limits hold for the run of a name, or, without one, where no override fits.

    Args:
        config: The configuration file.
        run: The name of whatever run; it need not be there. Only alerts about runs are told then.
        form: `table` or `json`.
        say: Gets each line.

    Returns:
        0.

    Raises:
        Refused: The configuration is wrong.
    """
    found = list(effective(load(config), run, config.name))
    if form == "json":
        say(
            json.dumps(
                {"run": run, "alerts": [_plain(alert) for alert in found]}, ensure_ascii=False, indent=2
            )
        )
    else:
        for line in table([HEADINGS, *(row for alert in found for row in _rows(alert))]):
            say(line)
    return 0


def effective(config: Config, run: str | None, file: str) -> Iterator[Alert]:
    """Yield each alert with the limits that hold; ``file`` is what the configuration is called."""
    for name, base in config.alerts:
        found = config.override(name, run) if run is not None and base.about_runs else None
        if found is not None:
            number, override = found
            place = "the demo" if override in DEMO else f"overrides[{number}] `{override.runs}`"
            origins = Origins(file, place, _leaves(override.alerts[name]))
            yield from _of_block(name, override.over(name, base), origins)
        elif run is None or base.about_runs:
            yield from _of_block(name, base, Origins(file))


def _of_block(name: str, block: Block, origins: Origins) -> Iterator[Alert]:
    values, defaults = _leaves(block.plain()), _leaves(type(block)().plain())
    levels = [level for level in SEVERITIES if level in block.names or level in block.plain()]
    for level in levels or [values["severity",]]:
        off = _switch(level, values)
        mine = [key for key in values if key[0] == level or key[0] not in (*levels, "enabled")]
        shown = [off] if off else mine or [("enabled",)]
        limits = [
            Limit(spell((name, *key)), values[key], origins.of(key, values[key], defaults)) for key in shown
        ]
        yield Alert(block.names.get(level, name), level, not off, tuple(limits))


def _switch(level: str, values: dict[KeyPath, Any]) -> KeyPath | None:
    """The key that switches a level off, if one does."""
    if not values["enabled",]:
        return ("enabled",)
    return (level,) if values.get((level,), "") is None else None


def _leaves(plain: dict[str, Any], above: KeyPath = ()) -> dict[KeyPath, Any]:
    """The values of a mapping of mappings, by key."""
    found: dict[KeyPath, Any] = {}
    for key, value in plain.items():
        inner = _leaves(value, (*above, key)) if isinstance(value, dict) else {(*above, key): value}
        found.update(inner)
    return found


def _rows(alert: Alert) -> Iterator[tuple[str, ...]]:
    for limit in alert.limits:
        value = _written(limit.value) if alert.enabled else OFF
        yield alert.name, alert.severity, limit.key, value, limit.origin


def _told(value: Any) -> Any:
    """A value as JSON can hold it."""
    return str(value) if isinstance(value, Duration | Size) else value


def _written(value: Any) -> str:
    """A value as config.yaml has it."""
    told = _told(value)
    return told if isinstance(told, str) else json.dumps(told)


def _plain(alert: Alert) -> dict[str, Any]:
    limits = {
        limit.key: {
            "value": _told(limit.value),
            "from": limit.origin,
        }
        for limit in alert.limits
    }
    return {"alert": alert.name, "severity": alert.severity, "enabled": alert.enabled, "limits": limits}

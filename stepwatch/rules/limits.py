"""The limits that config.yaml sets for an alert; those of overrides are served by the run exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stepwatch.alerts.promql import expand, number
from stepwatch.config.models import Config, Override
from stepwatch.schema.scalars import Duration, Size, to_re2
from stepwatch.schema.section import Block

SEVERITIES = ("info", "warning", "critical")
"""In the order of their numbers in ``rl_limit_override``."""

ON = 1.0
OFF = 0.0


@dataclass(frozen=True)
class Limits:
    """The limits of one block of config.yaml by key (``warning.stddevs``); null is 0."""

    config: Config
    block: str

    @property
    def settings(self) -> Block:
        """The block as config.yaml has it, for all runs."""
        settings: Block = self.config.alerts.block(self.block)
        return settings

    @cached_property
    def base(self) -> Mapping[str, float]:
        """What holds for the runs without an override; what is null is left out."""
        return {**flat(self.settings), "retention_time": self.config.retention.time.seconds}

    @cached_property
    def lists(self) -> Mapping[str, tuple[int, ...]]:
        """The lists of codes, which no override can name."""
        return {key: value for key, value in self.settings.plain().items() if isinstance(value, tuple)}

    @cached_property
    def overridden(self) -> frozenset[str]:
        """The keys that an override changes."""
        naming = (override for override in self.config.overrides if self.block in override.alerts)
        return frozenset().union(*(_changed(self.config, override, self.block) for override in naming))

    def known(self, key: str) -> bool:
        """Whether a limit is set for any run."""
        return key in self.base or key in self.overridden

    def promql(self, key: str) -> str:
        """Return the limit: a number, a pattern of the codes of a list, or what each run has in its place."""
        if key in self.lists:
            return "|".join(map(str, self.lists[key]))
        base = self.base.get(key)
        if key not in self.overridden:
            if base is None:
                raise KeyError(f"alerts.{self.block}.{key} is not set")
            return number(base)
        own = override(f"{self.block}.{key}")
        if base is None:
            return own
        return f"({own} or {number(base)} + 0 * {expand('by_run(rl_run_state)', str)})"


def override(key: str, *, remembered: bool = False) -> str:
    """Return what overrides say of a key, ``KL.warning.above``, for each run that they change it for."""
    series = f'rl_limit_override{{limit="{key}"}}'
    return expand(f"by_run(last_over_time({series}[10m]))" if remembered else f"by_run({series})", str)


def served_overrides(config: Config) -> list[dict[str, Any]]:
    """Return what the run exporter is to serve, as JSON: null for a limit that is taken away."""
    return [
        {
            "runs": to_re2(override.runs),
            "limits": {name: _changed(config, override, name) for name in override.alerts},
        }
        for override in config.overrides
    ]


def _changed(config: Config, written: Override, name: str) -> dict[str, float | None]:
    """Return what an override changes of a block; of a level that it switches off nothing else."""
    block = config.alerts.block(name)
    base, own = flat(block), flat(written.over(name, block))
    return {
        key: own.get(key)
        for key in sorted({*base, *own})
        if own.get(key) != base.get(key) and own.get(key.rpartition(".")[0]) != OFF
    }


def flat(block: Block) -> dict[str, float]:
    """Return the numbers of a block by key; what is null is left out."""
    return dict(_flat("", block.plain()))


def _flat(above: str, values: Mapping[str, Any]) -> Any:
    for name, value in values.items():
        key = f"{above}{name}"
        match value:
            case None:
                if name in SEVERITIES:
                    yield key, OFF
            case Mapping():
                yield key, ON
                yield from _flat(f"{key}.", value)
            case Duration():
                yield key, value.seconds
            case Size():
                yield key, float(value.bytes)
            case tuple():
                yield key, ON if value else OFF
            case str() if value in SEVERITIES:
                yield key, float(SEVERITIES.index(value))
            case bool() | int() | float():
                yield key, float(value)

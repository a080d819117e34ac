"""The limits of a configuration, one by one, and other values that each might have."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from stepwatch.config import Config
from stepwatch.schema.section import Section

REACH = 8
"""Values are tried from an eighth of a limit to eight times it."""

Value = int | float


@dataclass(frozen=True)
class Limit:
    """A number under `alerts`, by its keys there."""

    config: Config
    path: tuple[str, ...]
    now: Value

    @property
    def key(self) -> str:
        """As `--set` takes it."""
        return ".".join(("alerts", *self.path))

    def changed(self, value: Value) -> Config:
        """The configuration with another value here.

        Raises:
            ValidationError: It may not have this one.
        """
        name, *inside = self.path
        old = self.config.alerts.block(name)
        block = type(old).model_validate(_with(old.plain(), inside, value))
        alerts = type(self.config.alerts).model_validate({**dict(self.config.alerts), name: block})
        return type(self.config).model_validate({**dict(self.config), "alerts": alerts})

    def lower(self) -> list[Value]:
        """The values below, in two digits, from the next one on, as far as the configuration takes them."""
        return self._accepted([value for value in reversed(self._all()) if value < self.now])

    def higher(self) -> list[Value]:
        """The same above."""
        return self._accepted([value for value in self._all() if value > self.now])

    def _all(self) -> list[Value]:
        within = (value for value in _two_digits() if self.now / REACH <= value <= self.now * REACH)
        if self._refuses(float(self.now)):
            return [int(value) for value in within if value.is_integer()]
        return list(within)

    def _accepted(self, values: list[Value]) -> list[Value]:
        return values[: bisect_left(values, True, key=self._refuses)]  # noqa: FBT003  (what is looked for)

    def _refuses(self, value: Value) -> bool:
        try:
            self.changed(value)
        except ValidationError:
            return True
        return False


def limits(config: Config) -> Iterator[Limit]:
    """Every limit that is a number above 0 of an alert that is on."""
    for name, block in config.alerts:
        if block.enabled:
            yield from (Limit(config, (name, *path), value) for path, value in _numbers(block))


def _numbers(section: Section) -> Iterator[tuple[tuple[str, ...], Value]]:
    for key, value in section:
        if isinstance(value, Section):
            yield from (((key, *path), number) for path, number in _numbers(value))
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            yield (key,), value


def _two_digits() -> Iterator[float]:
    """1.0e-12, 1.1e-12 and so on."""
    for power in range(-13, 13):
        yield from (float(f"{digits}e{power}") for digits in range(10, 100))


def _with(values: Mapping[str, Any], path: list[str], value: Value) -> Any:
    if not path:
        return value
    key, *inside = path
    return {**values, key: _with(values[key], inside, value)}

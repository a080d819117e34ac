"""Durations and sizes as Prometheus spells them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS_MS = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit}(?![a-z]))?" for unit in _UNITS_MS))

# Prometheus counts nanoseconds in 64 bits.
MAX_SECONDS = 100 * 365 * 86_400

_SIZE_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,6})(KB|MB|GB|TB)")


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time, printed as Prometheus reads it (`1h30m`)."""

    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Return the duration of a text such as `5s`, `1h30m` or `90d`.

        Raises:
            ValueError: The text is not a duration, or one of more than 100 years.
        """
        match = _DURATION.fullmatch(text)
        if not match or not any(match.groups()):
            raise ValueError("is not a duration")
        duration = cls(
            sum(
                int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_MS.values(), strict=True)
            )
        )
        if duration.seconds > MAX_SECONDS:
            raise ValueError("is longer than 100 years")
        return duration

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.milliseconds / 1000

    def __str__(self) -> str:
        if not self.milliseconds:
            return "0s"
        return "".join(_parts(self.milliseconds))


def _parts(rest: int) -> list[str]:
    # Days only where they come out even: 36h says more than 1d12h.
    units = {unit: size for unit, size in _UNITS_MS.items() if unit not in "yw"}
    if rest % units["d"]:
        del units["d"]
    parts = []
    for unit, size in units.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return parts


@dataclass(frozen=True)
class Size:
    """An amount of storage in units of 1024, as Prometheus reads it (`20GB`)."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Size:
        """Return the size of a text such as `20GB`.

        Raises:
            ValueError: The text is not a whole number of KB, MB, GB or TB, or nothing at all.
        """
        match = _SIZE.fullmatch(text)
        if not match or not int(match[1]):
            raise ValueError("is not a size")
        return cls(f"{int(match[1])}{match[2]}")

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return int(self.text[:-2]) * _SIZE_UNITS[self.text[-2:]]

    def __str__(self) -> str:
        return self.text

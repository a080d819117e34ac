"""Where the search for logs begins on each mount: at watched paths, and where another search came to it."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.runs.files.mounts import Mount, Mounts
from exporter.runs.logs.find import Start, fixed_part, start_of


class Starts:
    """The starts of the watched paths, and of the places where a search left its mount."""

    def __init__(self, paths: tuple[str, ...], mounts: Mounts) -> None:
        self._paths, self._mounts = paths, mounts
        self._roots: dict[str, tuple[Mount, Start]] = {}
        self._led: dict[Start, tuple[Mount, Start]] = {}

    def resolve(self) -> None:
        """Find out on which mounts the watched paths lie now."""
        for pattern in self._paths:
            try:
                mount, real = self._mounts.resolve(fixed_part(pattern))
            except OSError:  # what was known still holds
                continue
            self._roots[pattern] = mount, start_of(pattern, real)

    def by_mount(self, beyond: Iterable[Start]) -> dict[Mount, list[Start]]:
        """All starts; ``beyond`` are the places that lead off the mount of a search."""
        starts: dict[Mount, list[Start]] = {}
        for mount, start in self._roots.values():
            starts.setdefault(mount, []).append(start)
        known, self._led = self._led, {}
        for place in beyond:
            led = self._lead(place, known)
            if led is not None:
                self._led[place] = led
                there = starts.setdefault(led[0], [])
                if not any(_covers(other, led[1]) for other in there):
                    there.append(led[1])
        return starts

    def _lead(self, start: Start, known: dict[Start, tuple[Mount, Start]]) -> tuple[Mount, Start] | None:
        """The mount that a way off another one leads to, and where the search goes on there."""
        if self._mounts.begins_at(start.real):
            return self._mounts.of(start.real), start
        if start in known and known[start][0] in self._mounts:
            return known[start]
        try:
            mount, real = self._mounts.resolve(start.real)
        except OSError:
            return None
        return mount, start._replace(real=real)


def _covers(known: Start, other: Start) -> bool:
    """Does one search come by all that another one would?"""
    if known.rest or other.rest:
        return (known.real, known.rest) == (other.real, other.rest)
    return f"{other.real}/".startswith(f"{known.real.rstrip('/')}/")

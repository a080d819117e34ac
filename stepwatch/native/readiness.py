"""Waits until the parts answer, and tells how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stepwatch.native import pages, processes, supervisord
from stepwatch.native.log import last_lines
from stepwatch.native.part import Part
from stepwatch.native.state import State

Say = Callable[[str], None]

_PATIENCE = 600
"""Seconds: Prometheus reads its log of months again before it is ready."""
_NEWS = 10
"""Seconds between two words on what is still starting."""
_ENDS = 3
"""A part that ended so often before it was ready will hardly become so."""


def ready(part: Part) -> bool:
    """Whether a part answers on its ready page."""
    return pages.read(part.page(part.ready)) is not None


@dataclass
class Wait:
    """One wait for some parts: since when, and how often each had ended by then."""

    place: State
    say: Say
    begun: float = field(default_factory=time.monotonic)
    ended: dict[str, int] = field(default_factory=dict)

    def until_ready(self, parts: Sequence[Part]) -> set[str]:
        """Wait until all parts answer or hope is lost; return the names of those that do not."""
        self.ended = supervisord.exits(self.place)
        waiting, news = list(parts), _NEWS
        while waiting := [part for part in waiting if not self._arrived(part)]:
            if all(self._hopeless(part) for part in waiting):
                break
            if self._seconds() > news:
                self.say(f"  still starting after {news} s: {', '.join(part.name for part in waiting)}")
                news += _NEWS
            time.sleep(0.2)
        for part in waiting:
            self._tell_failure(part)
        return {part.name for part in waiting}

    def _seconds(self) -> float:
        return time.monotonic() - self.begun

    def _arrived(self, part: Part) -> bool:
        arrived = ready(part)
        if arrived:
            self.say(f"  {part.name} is ready ({self._seconds():.1f} s)")
        return arrived

    def _hopeless(self, part: Part) -> bool:
        ends = supervisord.exits(self.place).get(part.name, 0) - self.ended.get(part.name, 0)
        return ends >= _ENDS or self._seconds() > _PATIENCE or not processes.marked(self.place.mark)

    def _tell_failure(self, part: Part) -> None:
        log = self.place.log(part.name)
        self.say(f"  {part.name} does not answer on {part.page(part.ready)}. Its log, {log}, ends with:")
        for line in last_lines(log, 5):
            self.say(f"    {line}")

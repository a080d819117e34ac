"""Waits until the parts answer, and tells how it goes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepwatch import pages
from stepwatch.native import processes, supervisord
from stepwatch.native.log import last_lines
from stepwatch.native.part import Part
from stepwatch.native.state import State
from stepwatch.native.supervisord import Report
from stepwatch.tables import Say

_PATIENCE = 600
"""Seconds: Prometheus reads its log of months again before it is ready."""
_NEWS = 10
"""Seconds between two words on what is still starting."""
_ENDS = 3
"""A part that ended so often before it was ready will hardly become so."""


def ready(part: Part, report: Report | None) -> bool:
    """Whether a part answers on its ready page; one without pages, whether it runs."""
    if part.web:
        return pages.read(part.web.page(part.web.ready)) is not None
    return report is not None and report.state == "RUNNING"


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
        while waiting := self._missing(waiting):
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

    def _missing(self, parts: Sequence[Part]) -> list[Part]:
        with supervisord.connected(self.place) as server:
            reports = server.reports() if server else {}
        return [part for part in parts if not self._arrived(part, reports.get(part.name))]

    def _arrived(self, part: Part, report: Report | None) -> bool:
        arrived = ready(part, report)
        if arrived:
            self.say(f"  {part.name} is ready ({self._seconds():.1f} s)")
        return arrived

    def _hopeless(self, part: Part) -> bool:
        ends = supervisord.exits(self.place).get(part.name, 0) - self.ended.get(part.name, 0)
        return ends >= _ENDS or self._seconds() > _PATIENCE or not processes.marked(self.place.mark)

    def _tell_failure(self, part: Part) -> None:
        log = self.place.log(part.name)
        fault = f"does not answer on {part.web.page(part.web.ready)}" if part.web else "does not run"
        self.say(f"  {part.name} {fault}. Its log, {log}, ends with:")
        for line in last_lines(log, 5):
            self.say(f"    {line}")

"""Reports runs that no rule can judge, because none of their keys is known."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from exporter.runs.signals.candidates import ENOUGH_RECORDS
from exporter.runs.stats.catalogue import JUDGED
from exporter.runs.visible.views import View

logger = logging.getLogger(__name__)

MOST_KEYS = 8


class Unmapped:
    """Remembers which runs were reported. ``unjudged`` counts those that no rule can judge now."""

    def __init__(self) -> None:
        self.unjudged = 0
        self._logged: set[int] = set()

    def log(self, views: Iterable[View]) -> None:
        """Report each such run once."""
        unjudged = [view for view in views if _is_unjudged(view)]
        self.unjudged = len(unjudged)
        for view in unjudged:
            if view.run.serial not in self._logged:
                logger.warning("%s", text(view))
        self._logged = {view.run.serial for view in unjudged}


def _is_unjudged(view: View) -> bool:
    return view.run.records >= ENOUGH_RECORDS and JUDGED.isdisjoint(view.run.latest)


def text(view: View) -> str:
    """The run, some of its keys, and the lines to add."""
    keys = sorted(view.run.raw.values(view.run.reading))
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    listed = f": {', '.join(keys[:MOST_KEYS])}{more}" if keys else ""
    likely = [candidate.setting for candidate in view.run.candidates()] or ["reward: [key]"]
    return (
        f"{view.name}: none of its keys is a signal that rules look at{listed}. "
        f"Fix: say below signals in config.yaml what they mean, such as {'; '.join(likely)}"
    )

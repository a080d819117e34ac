"""Which part of a trainer a signal is taken from, where several parts log one each in their own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from exporter.runs.model.progress import Progress, Stream
from exporter.runs.stats.catalogue import ZERO_MEANS_NOT_MEASURED

AHEAD = 2
"""Steps by which another part must have logged more to be believed instead: an evaluation may come first."""

IsMeasured = Callable[[str], bool]


class Owners:
    """The part that each signal is taken from: two parts that log it would count each step twice."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def own(
        self, found: Mapping[str, float], stream: Stream, progress: Progress, is_measured: IsMeasured
    ) -> dict[str, float]:
        """The signals among those found that are taken from this part.

        ``is_measured``: was this signal ever seen other than 0?
        """
        if not self._names:
            self._learn(stream, progress)
        return {
            signal: value
            for signal, value in found.items()
            if self._takes(signal, value, stream, progress, is_measured)
        }

    def _learn(self, stream: Stream, progress: Progress) -> None:
        """Until now there was one part, which logged all that was counted."""
        for other in progress.streams.values():
            if other is not stream:
                self._names.update(dict.fromkeys(other.counted, other.name))

    def _takes(
        self, signal: str, value: float, stream: Stream, progress: Progress, is_measured: IsMeasured
    ) -> bool:
        owner = self._names.setdefault(signal, stream.name)
        if owner == stream.name:
            return True
        known = progress.streams.get(owner)
        leads = known is not None and stream.steps >= known.steps + AHEAD
        if leads or (signal in ZERO_MEANS_NOT_MEASURED and value != 0 and not is_measured(signal)):
            self._names[signal] = stream.name
            return True
        return False

    def kept(self) -> dict[str, str]:
        """What a restart must not lose, as plain JSON values."""
        return self._names

    def take(self, kept: dict[str, str]) -> None:
        """Start from what ``kept`` returned."""
        self._names = dict(kept)

"""One simulated card: all its parts, read at the time of a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from exporter.gpu.backend import Quantity, Reading
from exporter.gpu.demo import activity, board, health, instances, links, modes
from exporter.gpu.demo.moment import LAG_SECONDS, Moment, dice
from exporter.gpu.demo.part import Part
from exporter.gpu.demo.uuids import uuid

PARTS: tuple[Part, ...] = (
    *board.PARTS,
    *modes.PARTS,
    *activity.PARTS,
    *links.PARTS,
    *health.PARTS,
    *instances.PARTS,
)


class DemoCard:
    """``begin`` is the card's first moment; ``seconds`` says how long the box has been at work."""

    def __init__(self, begin: Moment, seconds: Callable[[], float]) -> None:
        self.number = begin.number
        self.uuid = uuid("GPU", dice(begin.seed, begin.number))
        self.quantities: Sequence[Quantity] = [
            Quantity(part.call, part.tier, partial(self._read, part))
            for part in PARTS
            if part.call not in begin.profile.lacks
        ]
        self._begin = begin
        self._seconds = seconds

    def find(self) -> None:
        """It never was lost."""

    def _read(self, part: Part) -> Iterable[Reading]:
        at = max(0.0, self._seconds() - LAG_SECONDS * self.number)
        found = part.read(self._begin._replace(seconds=at))
        return [each for each in found if not self._lacks(part, each)]

    def _lacks(self, part: Part, reading: Reading) -> bool:
        return f"{part.call}({','.join(reading.labels.values())})" in self._begin.profile.lacks

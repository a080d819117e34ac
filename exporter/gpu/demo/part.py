"""What of a simulated card is read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo.moment import Moment


class Part(NamedTuple):
    """Readings that a card has or lacks together; ``call`` is named after NVML's for them."""

    call: str
    tier: Tier
    read: Callable[[Moment], Iterable[Reading]]


def each(metric: str, label: str, values: Mapping[str, float]) -> Iterator[Reading]:
    """A reading for each value, by what the label says."""
    return (Reading(metric, value, {label: name}) for name, value in values.items())

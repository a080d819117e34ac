"""How a GPU is asked: calls that it may not have, and other calls for the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from exporter.gpu.backend import NO_LABELS, Failure, Missing, ReadError, Reading, Tier
from exporter.gpu.nvml import library

Found = Reading | Missing | Failure
Read = Callable[[Any], Iterable[Found]]
"""Takes NVML's handle; raises ``library.Error`` where the driver has no answer."""

Probe = Callable[[Any], float]
"""Takes NVML's handle, returns one number; raises as ``Read`` does, and ``ReadError``."""

_NO_NUMBERS = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""What drivers write where they have no value."""


class Call(NamedTuple):
    """A call for one GPU; ``name`` is NVML's, without ``nvmlDevice``.

    ``close`` ends what goes on beside the readings. It is false while the driver holds a thread of it.
    ``forget`` releases what is kept from one reading to the next.
    """

    name: str
    tier: Tier
    read: Read
    close: Callable[[], bool] = lambda: True
    forget: Callable[[], None] = lambda: None


def number(value: float | None, most: float = float("inf")) -> float:
    """A number of the driver's, at most ``most``.

    Raises:
        ReadError: there cannot be such a value, "garbage".
    """
    if value is None or value in _NO_NUMBERS or not 0 <= value <= most:
        raise ReadError("garbage")
    return value


def asked(call: str, *arguments: Any, per: float = 1, most: float = float("inf")) -> Probe:
    """A probe of a call's number, of which ``per`` make one base unit; at most ``most`` as NVML counts."""
    return lambda handle: number(library.ask(handle, call, *arguments), most) / per


def one(
    call: str,
    tier: Tier,
    metric: str,
    labels: Mapping[str, str] = NO_LABELS,
    *,
    per: float = 1,
    most: float = float("inf"),
) -> Call:
    """A call whose whole answer is one number, in ``asked``'s terms."""
    ask = asked(call, per=per, most=most)
    return Call(call, tier, lambda handle: [Reading(metric, ask(handle), labels)])


def either(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The first where this GPU and driver have it, else the second; checked at each call."""

    def ask(handle: Any) -> Any:
        try:
            return first(handle)
        except library.Error as error:
            if error.value not in library.NOT_HERE:
                raise
        return second(handle)

    return ask


def parts(handle: Any, call: str, metric: str, label: str, probes: Mapping[str, Probe]) -> list[Found]:
    """A reading for each value of the label and its probe, as far as the GPU has it.

    Raises:
        library.Error: it has none of them.
    """
    found: list[Found] = []
    lacking: list[library.Error] = []
    for value, probe in probes.items():
        try:
            found.append(Reading(metric, probe(handle), {label: value}))
        except ReadError as problem:  # noqa: PERF203  (a failed part must not end the others)
            found.append(Failure(f"{call}({value})", problem.code))
        except library.Error as error:
            if error.value not in library.NOT_HERE:
                raise
            found.append(Missing(f"{call}({value})", library.error_name(error.value)))
            lacking.append(error)
    if len(lacking) == len(probes):
        raise lacking[0]
    return found

"""How a GPU is asked: calls that it may not have, and other ways to the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from exporter.gpu.backend import NO_LABELS, Failure, Missing, ReadError, Reading, Tier
from exporter.gpu.nvml import errors, library

Found = Reading | Missing | Failure
Read = Callable[[Any], Iterable[Found]]
"""Takes NVML's handle; raises ``library.Error`` where the driver has no answer."""

_NO_NUMBERS = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""What drivers write where they have no value."""


def _idle() -> bool:
    return True


def _nothing() -> None:
    """Most calls keep nothing."""


class Call(NamedTuple):
    """A way to ask a GPU for something; ``name`` is NVML's, without ``nvmlDevice``.

    ``close`` ends what goes on beside the readings. It is false while the driver holds a thread of it.
    ``forget`` releases what is kept from one reading to the next.
    """

    name: str
    tier: Tier
    read: Read
    close: Callable[[], bool] = _idle
    forget: Callable[[], None] = _nothing


def number(value: float | None, most: float = float("inf")) -> float:
    """A number of the driver's, at most ``most``.

    Raises:
        ReadError: there cannot be such a value, "garbage".
    """
    if value is None or value in _NO_NUMBERS or not 0 <= value <= most:
        raise ReadError("garbage")
    return value


def asked(call: str, *arguments: Any, per: float = 1, most: float = float("inf")) -> Callable[[Any], float]:
    """A way to a call's number, of which ``per`` make one base unit; at most ``most`` as NVML counts."""
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
    """The first way where this GPU and driver have it, else the second; found out anew each time."""

    def ask(handle: Any) -> Any:
        try:
            return first(handle)
        except library.Error as error:
            if error.value not in errors.NOT_HERE:
                raise
        return second(handle)

    return ask


def parts(
    handle: Any, call: str, metric: str, ways: Mapping[tuple[str, str], Callable[[Any], float]]
) -> list[Found]:
    """A reading for each label and its way, as far as the GPU has it.

    Raises:
        library.Error: it has none of them.
    """
    asked = [_part(call, metric, label, partial(way, handle)) for label, way in ways.items()]
    lacking = [error for _, error in asked if error]
    if len(lacking) == len(asked):
        raise lacking[0]
    return [found for found, _ in asked]


def _part(
    call: str, metric: str, label: tuple[str, str], ask: Callable[[], float]
) -> tuple[Found, library.Error | None]:
    """What is read, and the error if the GPU or driver lacks it."""
    name = f"{call}({label[1]})"
    try:
        return Reading(metric, ask(), dict([label])), None
    except ReadError as problem:
        return Failure(name, problem.code), None
    except library.Error as error:
        if error.value not in errors.NOT_HERE:
            raise
        return Missing(name, errors.name(error.value)), error

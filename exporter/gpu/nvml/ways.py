"""How a GPU is asked: calls that it may not have, and other ways to the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pynvml

from exporter.gpu.backend import Missing, Reading, Tier
from exporter.gpu.nvml import errors

Read = Callable[[Any], Iterable[Reading | Missing]]
"""Takes NVML's handle; raises ``NVMLError`` where the driver has no answer."""


def _nothing() -> None:
    """Most calls remember nothing."""


class Call(NamedTuple):
    """A way to ask a GPU for something; ``name`` is NVML's, without ``nvmlDevice``.

    ``forget`` lets go of what ``read`` keeps from one time to the next.
    """

    name: str
    tier: Tier
    read: Read
    forget: Callable[[], None] = _nothing


_NOT_HERE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
)


def either(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The first way where this GPU and driver have it, else the second; found out anew each time."""

    def ask(handle: Any) -> Any:
        try:
            return first(handle)
        except pynvml.NVMLError as error:
            if error.value not in _NOT_HERE:
                raise
        return second(handle)

    return ask


def parts(handle: Any, call: str, metric: str, ways: Mapping[tuple[str, str], Callable[[Any], float]]) -> Any:
    """A reading for each label and its way, as far as the GPU has it.

    Raises:
        NVMLError: it has none of them.
    """
    found = [_part(handle, call, metric, label, way) for label, way in ways.items()]
    if not any(isinstance(each, Reading) for each in found):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return found


def _part(
    handle: Any, call: str, metric: str, label: tuple[str, str], way: Callable[[Any], float]
) -> Reading | Missing:
    try:
        return Reading(metric, way(handle), dict([label]))
    except pynvml.NVMLError as error:
        if error.value not in _NOT_HERE:
            raise
        return Missing(f"{call}({label[1]})", errors.name(error.value))


def swap(ask: Callable[[Any, int], float], number: int, handle: Any) -> float:
    """Ask for one of several; the number first, for ``partial``."""
    return ask(handle, number)

"""Values that have a number instead of a call of their own, asked for in one batch.

Numbers above 250 differ from driver to driver and are not used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pynvml

from exporter.gpu.backend import Missing, Reading
from exporter.gpu.nvml import errors

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of the value union for each value type. Another one holds garbage."""


class Field(NamedTuple):
    """A field's number, and the metric that it becomes."""

    number: int
    metric: str
    scale: float
    labels: Mapping[str, str] = {}


FAST = (
    Field(pynvml.NVML_FI_DEV_POWER_INSTANT, "gpu_power_instant_watts", 1e-3),
    Field(pynvml.NVML_FI_DEV_MEMORY_TEMP, "gpu_temperature_celsius", 1, {"sensor": "memory"}),
)


def value(kind: int, union: Any) -> float:
    """What a value union holds, by its value type."""
    return float(getattr(union, _MEMBERS[kind]))


def ask(handle: Any, numbers: tuple[int, ...]) -> Iterator[tuple[int, int, float]]:
    """Number, error code and value of each field; the value only counts where the code is 0.

    Raises:
        NVMLError: none of them can be had.
    """
    for found in pynvml.nvmlDeviceGetFieldValues(handle, numbers):
        good = found.nvmlReturn == pynvml.NVML_SUCCESS and found.valueType < len(_MEMBERS)
        yield found.fieldId, found.nvmlReturn, value(found.valueType, found.value) if good else 0.0


def read(handle: Any, fields: tuple[Field, ...]) -> Iterator[Reading | Missing]:
    """The fields' readings. Raises ``NVMLError`` as ``ask``."""
    wanted = {field.number: field for field in fields}
    for number, code, found in ask(handle, tuple(wanted)):
        field = wanted[number]
        if code == pynvml.NVML_SUCCESS:
            yield Reading(field.metric, found * field.scale, field.labels)
        else:
            yield Missing(f"FieldValue_{number}", errors.name(code))

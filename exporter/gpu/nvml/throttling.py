"""Why clocks are held down, now and for how long since the driver was loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.contract import CLOCK_EVENTS
from exporter.gpu.nvml import library
from exporter.gpu.nvml.batch import Way
from exporter.gpu.nvml.fields import Field
from exporter.gpu.nvml.probes import Call, either

Version = tuple[int, ...]

_ALWAYS = {74: "power_cap", 76: "sync_boost"}
_SUM = {75: "thermal"}
"""All slowing down for heat: what drivers tell that do not tell its kinds."""

_KINDS = ("software_thermal", "hardware_thermal", "power_brake")
_NUMBERS: tuple[tuple[Version, Version, int], ...] = (
    ((575,), (580, 65), 251),
    ((580, 82), (9999,), 269),
)
"""From which driver to which the numbers of the kinds begin where.

NVIDIA moved them within a branch: power smoothing took 251 to 253, and answers there with numbers that
look as good. Read off ``nvidia-ml-py`` 12.570.86, 12.575.51, 13.580.65 and 13.580.82. Between the last two
no one can know.
"""


def version(text: str) -> Version:
    """A driver's version as two numbers; empty if it is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def fields(driver: Version) -> Iterator[Field]:
    """What can be asked of this driver, in nanoseconds."""
    for number, reason in {**_ALWAYS, **_kinds(driver)}.items():
        ways = (Way(number, 1e9),)
        yield Field("throttling", "gpu_clock_event_seconds_total", ways, {"reason": reason}, wide=True)


def _kinds(driver: Version) -> dict[int, str]:
    for oldest, newest, first in _NUMBERS:
        if oldest <= driver <= newest:
            return dict(enumerate(_KINDS, first))
    return _SUM


_now = either(
    partial(library.ask, name="GetCurrentClocksEventReasons"),
    partial(library.ask, name="GetCurrentClocksThrottleReasons"),
)
"""The second name is the one before driver 535, and goes with CUDA 14."""


def _active(handle: Any) -> Iterator[Reading]:
    bits = _now(handle)
    for bit, reason in CLOCK_EVENTS.items():
        yield Reading("gpu_clock_event_active", float(bool(bits & bit)), {"reason": reason})


CALLS = (Call("GetCurrentClocksEventReasons", Tier.FAST, _active),)

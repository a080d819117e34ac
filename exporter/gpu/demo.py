"""Eight simulated GPUs that train a model together. A sick one gets hot and reports Xid errors.

All values follow from the seed and the clock, so two readings at one time agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from exporter.gpu.backend import Card, Event, Extras, Quantity, Reading, Tier

GPUS = 8
NAME = "simulated H200"
"""No message about these GPUs is to be taken for one about a real one."""
XID = 48
"""An uncorrectable memory error."""
XID_AFTER_SECONDS = 45.0
XID_EVERY_SECONDS = 180.0

MEMORY_BYTES = 150_754_820_096.0
RESERVED_BYTES = 643_825_664.0
LIMITS_WATTS = {"default": 700.0, "requested": 700.0, "enforced": 700.0, "min": 200.0, "max": 700.0}
CLOCKS_HERTZ = {"graphics": 1.98e9, "sm": 1.98e9, "memory": 3.201e9, "video": 1.545e9}
THRESHOLDS_CELSIUS = {"shutdown": 95.0, "slowdown": 89.0, "gpu_max": 87.0}
AMBIENT_CELSIUS = 28.0
CELSIUS_PER_WATT = 0.06
SICK_CELSIUS = 32.0
"""By how much the sick GPU is hotter, a minute after the start."""
COOLING_SECONDS = 30.0


class Phase(NamedTuple):
    """A part of a training step: how long it takes, and what it does to a GPU."""

    seconds: float
    utilization: float
    memory: float
    watts: float
    clock: float


STEP = (
    Phase(12, 0.93, 0.82, 520, 0.95),  # responses are sampled
    Phase(2, 0.08, 0.55, 140, 0.60),  # weights move
    Phase(8, 0.98, 0.91, 670, 0.90),  # the policy is updated
    Phase(2, 0.03, 0.42, 120, 0.30),  # the next batch is prepared
)
STEP_SECONDS = sum(phase.seconds for phase in STEP)
STEP_JOULES = sum(phase.seconds * phase.watts for phase in STEP)


class Demo:
    """The GPUs and their errors. ``clock`` in seconds; ``sleep`` waits that long."""

    def __init__(
        self,
        extras: Extras,
        seed: int = 7,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sick = extras.sick
        self._seed = seed
        self._clock = clock
        self._sleep = sleep
        self._started = 0.0
        self._errors = 0
        self._cards: list[Card] = []

    def open(self) -> None:
        self._started = self._clock()
        self._cards = [
            _Card(number, self._seed, self._seconds, sick=number == self._sick) for number in range(GPUS)
        ]

    def _seconds(self) -> float:
        return self._clock() - self._started

    def system(self) -> list[Reading]:
        labels = {"driver_version": "demo", "cuda_version": "demo", "nvml_version": "demo"}
        return [Reading("gpu_driver_info", 1, labels)]

    def cards(self) -> list[Card]:
        return self._cards

    def events(self, seconds: float) -> list[Event]:
        late = self._seconds() - XID_AFTER_SECONDS
        if self._sick is None or late < 0 or late // XID_EVERY_SECONDS < self._errors:
            self._sleep(seconds)
            return []
        self._errors += 1
        return [Event(self._cards[self._sick].uuid, XID, time.time())]

    def close(self) -> None:
        """There is nothing to let go of."""


class _Card:
    """One simulated GPU, a little behind the one before it."""

    def __init__(self, number: int, seed: int, seconds: Callable[[], float], *, sick: bool) -> None:
        self.number = number
        self.uuid = _uuid(_dice(seed, number))
        self.quantities: Sequence[Quantity] = (
            Quantity("demo_static", Tier.STATIC, self._static),
            Quantity("demo_fast", Tier.FAST, self._fast),
        )
        self._seed = seed
        self._seconds = seconds
        self._sick = sick

    def find(self) -> None:
        """It never was lost."""

    def _static(self) -> Iterator[Reading]:
        labels = {"name": NAME, "pci_bus_id": f"00000000:{16 * self.number + 1:02X}:00.0"}
        more = {"architecture": "hopper", "compute_capability": "9.0", "vbios_version": "demo"}
        yield Reading("gpu_info", 1, {**labels, **more})
        yield from _each("gpu_clock_max_hertz", "domain", CLOCKS_HERTZ)
        yield from _each("gpu_power_limit_watts", "limit", LIMITS_WATTS)
        yield from _each("gpu_temperature_threshold_celsius", "threshold", THRESHOLDS_CELSIUS)

    def _fast(self) -> Iterator[Reading]:
        now = max(0.0, self._seconds() - 0.2 * self.number)
        phase, jitter = _phase(now), _dice(self._seed, self.number, round(now)).uniform(-0.02, 0.02)
        used = (MEMORY_BYTES - RESERVED_BYTES) * (phase.memory + jitter / 4)
        celsius = float(round(self._celsius(now)))
        yield Reading("gpu_utilization_ratio", round(phase.utilization + jitter, 2))
        yield Reading("gpu_utilization_window_max_ratio", min(1.0, round(phase.utilization + 0.02, 2)))
        yield Reading("gpu_memory_controller_utilization_ratio", round(0.6 * phase.utilization, 2))
        yield Reading("gpu_memory_total_bytes", MEMORY_BYTES)
        yield Reading("gpu_memory_reserved_bytes", RESERVED_BYTES)
        yield Reading("gpu_memory_used_bytes", used // 1)
        yield Reading("gpu_memory_free_bytes", MEMORY_BYTES - RESERVED_BYTES - used // 1)
        yield Reading("gpu_power_watts", phase.watts)
        yield Reading("gpu_power_instant_watts", phase.watts * (1 + jitter))
        yield Reading("gpu_energy_joules_total", joules(now))
        yield Reading("gpu_temperature_celsius", celsius, {"sensor": "gpu"})
        yield Reading("gpu_temperature_celsius", celsius + 6, {"sensor": "memory"})
        yield Reading("gpu_temperature_margin_celsius", THRESHOLDS_CELSIUS["gpu_max"] - celsius)
        yield from _each(
            "gpu_clock_hertz", "domain", {name: at * phase.clock for name, at in CLOCKS_HERTZ.items()}
        )

    def _celsius(self, now: float) -> float:
        """Follows the mean power of the last half minute."""
        watts = (joules(now) - joules(max(0.0, now - COOLING_SECONDS))) / COOLING_SECONDS
        extra = SICK_CELSIUS * min(1.0, now / 60) if self._sick else 0.0
        return AMBIENT_CELSIUS + CELSIUS_PER_WATT * watts + extra


def _dice(*seed: int) -> Random:
    return Random(str(seed))  # noqa: S311  (no secret comes of it)


def joules(seconds: float) -> float:
    """What a GPU has used since the start: the integral of its power over the phases."""
    steps, rest = divmod(seconds, STEP_SECONDS)
    used = steps * STEP_JOULES
    for phase in STEP:
        used += min(rest, phase.seconds) * phase.watts
        rest = max(0.0, rest - phase.seconds)
    return used


def _phase(seconds: float) -> Phase:
    rest = seconds % STEP_SECONDS
    for phase in STEP:
        if rest < phase.seconds:
            return phase
        rest -= phase.seconds
    return STEP[-1]


def _each(metric: str, label: str, values: dict[str, float]) -> Iterator[Reading]:
    return (Reading(metric, value, {label: name}) for name, value in values.items())


def _uuid(dice: Random) -> str:
    digits = f"{dice.getrandbits(128):032x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

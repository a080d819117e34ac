"""What a simulated card is, how warm and how fast, and what it draws."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.contract import CLOCK_EVENTS
from exporter.gpu.demo import load, sickness
from exporter.gpu.demo.load import Phase
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.part import Part, each

AMBIENT_CELSIUS = 28.0
FULL_LOAD_CELSIUS = 42.0
"""By how much a card that draws all it may is warmer than the air."""
USUAL_CELSIUS = AMBIENT_CELSIUS + FULL_LOAD_CELSIUS * load.mean(lambda phase: phase.power)
COOLING_SECONDS = 30.0
MEMORY_CELSIUS = 6.0
"""Memory is warmer by that."""
COUNTED_EVENTS = ("power_cap", "sync_boost", "software_thermal", "hardware_thermal", "power_brake")
CAPPED_OF = 4
"""Every fourth card reaches its power limit while the policy is updated."""


def _identity(moment: Moment) -> Iterator[Reading]:
    profile = moment.profile
    labels = {
        "name": profile.name,
        "pci_bus_id": f"00000000:{16 * moment.number + 1:02X}:00.0",
        "architecture": profile.architecture,
        "compute_capability": profile.compute_capability,
        "vbios_version": "demo",
    }
    serial = {"serial": f"demo-{moment.number}"} if moment.extras.serial else {}
    yield Reading("gpu_info", 1, {**labels, **serial})


def _most_clocks(moment: Moment) -> Iterator[Reading]:
    return each("gpu_clock_max_hertz", "domain", moment.profile.clocks)


def _thresholds(moment: Moment) -> Iterator[Reading]:
    return each("gpu_temperature_threshold_celsius", "threshold", moment.profile.thresholds)


def _power(moment: Moment) -> Iterator[Reading]:
    watts = moment.phase.power * moment.profile.most_power
    yield Reading("gpu_power_watts", watts)
    yield Reading("gpu_power_instant_watts", watts * (1 + moment.jitter))


def _limits(moment: Moment) -> Iterator[Reading]:
    most = moment.profile.most_power
    set_to = dict.fromkeys(("default", "requested", "enforced", "max"), most)
    return each("gpu_power_limit_watts", "limit", {**set_to, "min": moment.profile.least_power})


def _energy(moment: Moment) -> Iterator[Reading]:
    watts = moment.profile.most_power
    yield Reading("gpu_energy_joules_total", moment.total(lambda phase: phase.power * watts))


def _temperature(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_temperature_celsius", _celsius(moment), {"sensor": "gpu"})


def _memory_temperature(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_temperature_celsius", _celsius(moment) + MEMORY_CELSIUS, {"sensor": "memory"})


def _margin(moment: Moment) -> Iterator[Reading]:
    zero = moment.profile.thresholds[moment.profile.margin_to]
    yield Reading("gpu_temperature_margin_celsius", zero - _celsius(moment))


def _celsius(moment: Moment) -> float:
    """Follows the mean power of the last half minute; a sick card's margin is soon used up."""
    power = moment.mean(lambda phase: phase.power, COOLING_SECONDS)
    too_hot = moment.profile.thresholds[moment.profile.margin_to] - USUAL_CELSIUS
    return float(round(AMBIENT_CELSIUS + FULL_LOAD_CELSIUS * power + sickness.heat(moment) * too_hot))


def _clocks(moment: Moment) -> Iterator[Reading]:
    most = moment.profile.clocks
    share = moment.phase.clock * (1 - sickness.SLOWED_SHARE * sickness.slowed(moment))
    now = {name: float(round(share * most[name])) for name in ("graphics", "sm")}
    return each("gpu_clock_hertz", "domain", {**most, **now})


def _events(moment: Moment) -> Iterator[Reading]:
    active = {
        "idle": moment.phase.utilization < 0.05,
        "power_cap": _capped(moment, moment.phase),
        "software_thermal": sickness.slowed(moment),
    }
    values = {reason: float(active.get(reason, False)) for reason in CLOCK_EVENTS.values()}
    return each("gpu_clock_event_active", "reason", values)


def _event_seconds(moment: Moment) -> Iterator[Reading]:
    seconds = {
        "power_cap": moment.total(lambda phase: _capped(moment, phase)),
        "software_thermal": sickness.slowed_seconds(moment),
    }
    values = {reason: seconds.get(reason, 0.0) for reason in COUNTED_EVENTS}
    return each("gpu_clock_event_seconds_total", "reason", values)


def _capped(moment: Moment, phase: Phase) -> bool:
    return phase is load.UPDATING and moment.number % CAPPED_OF == 1


PARTS = (
    Part("GetName", Tier.STATIC, _identity),
    Part("GetMaxClockInfo", Tier.STATIC, _most_clocks),
    Part("GetTemperatureThreshold", Tier.STATIC, _thresholds),
    Part("GetPowerUsage", Tier.FAST, _power),
    Part("GetEnforcedPowerLimit", Tier.SLOW, _limits),
    Part("GetTotalEnergyConsumption", Tier.FAST, _energy),
    Part("GetTemperature", Tier.FAST, _temperature),
    Part("MemoryTemperature", Tier.FAST, _memory_temperature),
    Part("GetMarginTemperature", Tier.FAST, _margin),
    Part("GetClockInfo", Tier.FAST, _clocks),
    Part("GetCurrentClocksEventReasons", Tier.FAST, _events),
    Part("ClocksEventReasonCounters", Tier.FAST, _event_seconds),
)

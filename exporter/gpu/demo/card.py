"""One simulated card: all its parts, read at the time of a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from exporter.gpu.backend import Quantity, Reading, Tier
from exporter.gpu.contract import CLOCK_EVENTS
from exporter.gpu.demo import activity, links, load, sickness
from exporter.gpu.demo.activity import used_bytes
from exporter.gpu.demo.load import Phase
from exporter.gpu.demo.moment import LAG_SECONDS, Moment, dice
from exporter.gpu.demo.part import Part, each
from exporter.gpu.demo.profiles import Instance
from exporter.gpu.demo.uuids import uuid


def _state(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_performance_state", moment.profile.state)


def _compute(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_compute_mode", 0)


def _persistence(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_persistence_mode", moment.profile.persistence)


def _mig(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_mig_mode", bool(moment.profile.instances))


def _ecc_mode(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_ecc_mode", 1)


def _fans(moment: Moment) -> Iterator[Reading]:
    speed = round(0.3 + 0.4 * moment.phase.power, 2)
    return each("gpu_fan_speed_ratio", "fan", {str(fan): speed for fan in range(moment.profile.fans)})


MODES = (
    Part("GetPerformanceState", Tier.FAST, _state),
    Part("GetComputeMode", Tier.SLOW, _compute),
    Part("GetPersistenceMode", Tier.SLOW, _persistence),
    Part("GetMigMode", Tier.SLOW, _mig),
    Part("GetEccMode", Tier.SLOW, _ecc_mode),
    Part("GetFanSpeed", Tier.FAST, _fans),
)


RESERVED = 2**25
"""What the driver keeps of each instance for itself."""


def _info(moment: Moment) -> Iterator[Reading]:
    for instance in moment.profile.instances:
        labels = {
            "gpu_instance_id": str(instance.number),
            "compute_instance_id": "0",
            "profile": instance.profile,
            "mig_uuid": uuid("MIG", dice(moment.seed, moment.number, instance.number)),
        }
        yield Reading("gpu_mig_info", 1, labels)


def _memory(moment: Moment) -> Iterator[Reading]:
    for instance in moment.profile.instances:
        label = {"gpu_instance_id": str(instance.number)}
        for part, value in _parts(moment, instance).items():
            yield Reading(f"gpu_mig_memory_{part}_bytes", value, label)


def _parts(moment: Moment, instance: Instance) -> dict[str, float]:
    """What is used of the board is used in its instances, in each as much as it is large."""
    used = used_bytes(moment) * instance.memory // sum(each.memory for each in moment.profile.instances)
    free = instance.memory - RESERVED - used
    return {"total": instance.memory, "used": used, "free": free, "reserved": RESERVED}


INSTANCES = (
    Part("GetMigDeviceHandleByIndex", Tier.SLOW, _info),
    Part("GetMemoryInfo(mig)", Tier.FAST, _memory),
)


RESET = 1


def _ecc(moment: Moment) -> Iterator[Reading]:
    counts = {"corrected": 0.0, "uncorrected": float(sickness.errors(moment))}
    yield from each("gpu_ecc_errors_total", "type", counts)
    yield from each("gpu_ecc_volatile_errors_total", "type", counts)


def _rows(moment: Moment) -> Iterator[Reading]:
    """The card has set aside another row for each bad one."""
    errors = float(sickness.errors(moment))
    return each("gpu_remapped_rows_total", "cause", {"correctable": 0.0, "uncorrectable": errors})


def _row_state(moment: Moment) -> Iterator[Reading]:
    """It uses those from the next reset on."""
    yield Reading("gpu_row_remap_pending", sickness.errors(moment) > 0)
    yield Reading("gpu_row_remap_failed", 0)


def _recovery(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_recovery_action", RESET if sickness.errors(moment) else 0)


HEALTH = (
    Part("GetTotalEccErrors", Tier.SLOW, _ecc),
    Part("GetRemappedRows", Tier.SLOW, _rows),
    Part("RowRemapState", Tier.SLOW, _row_state),
    Part("RecoveryAction", Tier.SLOW, _recovery),
)


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


BOARD = (
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


PARTS: tuple[Part, ...] = (
    *BOARD,
    *MODES,
    *activity.PARTS,
    *links.PARTS,
    *HEALTH,
    *INSTANCES,
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

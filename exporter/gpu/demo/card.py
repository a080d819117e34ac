"""One simulated card: all its parts, read at the time of a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import fsum
from typing import NamedTuple

from exporter.gpu.backend import CLOCK_EVENTS, NO_LABELS, Quantity, Reading, Tier
from exporter.gpu.demo.moment import LAG_SECONDS, UPDATING, Moment, Phase, step_mean, uuid


class Part(NamedTuple):
    """Readings that a card has or lacks together; ``call`` is named after NVML's for them."""

    call: str
    tier: Tier
    read: Callable[[Moment], Iterable[Reading]]


def one(
    call: str,
    tier: Tier,
    metric: str,
    value: Callable[[Moment], float],
    labels: Mapping[str, str] = NO_LABELS,
) -> Part:
    """A part of one reading."""
    return Part(call, tier, lambda moment: [Reading(metric, value(moment), labels)])


def each(metric: str, label: str, values: Mapping[str, float]) -> Iterator[Reading]:
    """A reading for each value, by what the label says."""
    return (Reading(metric, value, {label: name}) for name, value in values.items())


AMBIENT_CELSIUS = 28.0
FULL_LOAD_CELSIUS = 42.0
"""By how much a card that draws all it may is warmer than the air."""
USUAL_CELSIUS = AMBIENT_CELSIUS + FULL_LOAD_CELSIUS * step_mean(lambda phase: phase.power)
COOLING_SECONDS = 30.0
MEMORY_CELSIUS = 6.0
"""Memory is warmer by that."""
SLOWED_SHARE = 0.2
"""How much of the clock the heat costs."""
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


def _power(moment: Moment) -> Iterator[Reading]:
    watts = moment.phase.power * moment.profile.most_power
    yield Reading("gpu_power_watts", watts)
    yield Reading("gpu_power_instant_watts", watts * (1 + moment.jitter))


def _limits(moment: Moment) -> Iterator[Reading]:
    set_to = dict.fromkeys(("default", "requested", "enforced", "max"), moment.profile.most_power)
    return each("gpu_power_limit_watts", "limit", {**set_to, "min": moment.profile.least_power})


def _energy(moment: Moment) -> float:
    return moment.total(lambda phase: phase.power * moment.profile.most_power)


def _celsius(moment: Moment) -> float:
    """Follows the mean power of the last half minute; a sick card's margin is soon used up."""
    power = moment.mean(lambda phase: phase.power, COOLING_SECONDS)
    too_hot = moment.profile.thresholds[moment.profile.margin_to] - USUAL_CELSIUS
    return float(round(AMBIENT_CELSIUS + FULL_LOAD_CELSIUS * power + moment.heat * too_hot))


def _clocks(moment: Moment) -> Iterator[Reading]:
    most = moment.profile.clocks
    share = moment.phase.clock * (1 - SLOWED_SHARE * moment.slowed)
    now = {name: float(round(share * most[name])) for name in ("graphics", "sm")}
    return each("gpu_clock_hertz", "domain", {**most, **now})


def _events(moment: Moment) -> Iterator[Reading]:
    active = {
        "idle": moment.phase.utilization < 0.05,
        "power_cap": _capped(moment, moment.phase),
        "software_thermal": moment.slowed,
    }
    values = {reason: float(active.get(reason, False)) for reason in CLOCK_EVENTS.values()}
    return each("gpu_clock_event_active", "reason", values)


def _event_seconds(moment: Moment) -> Iterator[Reading]:
    seconds = {
        "power_cap": moment.total(lambda phase: _capped(moment, phase)),
        "software_thermal": moment.slowed_seconds,
    }
    values = {reason: seconds.get(reason, 0.0) for reason in COUNTED_EVENTS}
    return each("gpu_clock_event_seconds_total", "reason", values)


def _capped(moment: Moment, phase: Phase) -> bool:
    return phase is UPDATING and moment.number % CAPPED_OF == 1


BOARD = (
    Part("GetName", Tier.STATIC, _identity),
    Part(
        "GetMaxClockInfo",
        Tier.STATIC,
        lambda moment: each("gpu_clock_max_hertz", "domain", moment.profile.clocks),
    ),
    Part(
        "GetTemperatureThreshold",
        Tier.STATIC,
        lambda moment: each("gpu_temperature_threshold_celsius", "threshold", moment.profile.thresholds),
    ),
    Part("GetPowerUsage", Tier.FAST, _power),
    Part("GetEnforcedPowerLimit", Tier.SLOW, _limits),
    one("GetTotalEnergyConsumption", Tier.FAST, "gpu_energy_joules_total", _energy),
    one("GetTemperature", Tier.FAST, "gpu_temperature_celsius", _celsius, {"sensor": "gpu"}),
    one(
        "MemoryTemperature",
        Tier.FAST,
        "gpu_temperature_celsius",
        lambda moment: _celsius(moment) + MEMORY_CELSIUS,
        {"sensor": "memory"},
    ),
    one(
        "GetMarginTemperature",
        Tier.FAST,
        "gpu_temperature_margin_celsius",
        lambda moment: moment.profile.thresholds[moment.profile.margin_to] - _celsius(moment),
    ),
    Part("GetClockInfo", Tier.FAST, _clocks),
    Part("GetCurrentClocksEventReasons", Tier.FAST, _events),
    Part("ClocksEventReasonCounters", Tier.FAST, _event_seconds),
)


def _fans(moment: Moment) -> Iterator[Reading]:
    speed = round(0.3 + 0.4 * moment.phase.power, 2)
    return each("gpu_fan_speed_ratio", "fan", {str(fan): speed for fan in range(moment.profile.fans)})


MODES = (
    one("GetPerformanceState", Tier.FAST, "gpu_performance_state", lambda moment: moment.profile.state),
    one("GetComputeMode", Tier.SLOW, "gpu_compute_mode", lambda _: 0),
    one("GetPersistenceMode", Tier.SLOW, "gpu_persistence_mode", lambda moment: moment.profile.persistence),
    one("GetMigMode", Tier.SLOW, "gpu_mig_mode", lambda moment: bool(moment.profile.instances)),
    one("GetEccMode", Tier.SLOW, "gpu_ecc_mode", lambda _: 1),
    Part("GetFanSpeed", Tier.FAST, _fans),
)

CONTROLLER_SHARE = 0.6
ENGINES = ("encoder", "decoder", "jpeg", "ofa")
PROCESSES = {"trainer": 0.55, "rollout": 0.45}
"""Which share of the card's memory each holds."""
FIRST_PID = 4000
NAMESPACE = "simulated"
"""No process of any run is in it."""


def _utilization(moment: Moment) -> Iterator[Reading]:
    busy = moment.phase.utilization
    yield Reading("gpu_utilization_ratio", round(busy + moment.jitter, 2))
    yield Reading("gpu_memory_controller_utilization_ratio", round(CONTROLLER_SHARE * busy, 2))


def _used_bytes(moment: Moment) -> float:
    """Memory of the board that programs hold."""
    free = moment.profile.memory - moment.profile.reserved
    return free * (moment.phase.memory + moment.jitter / 4) // 1


def _memory(moment: Moment) -> Iterator[Reading]:
    profile, used = moment.profile, _used_bytes(moment)
    yield Reading("gpu_memory_total_bytes", profile.memory)
    yield Reading("gpu_memory_reserved_bytes", profile.reserved)
    yield Reading("gpu_memory_used_bytes", used)
    yield Reading("gpu_memory_free_bytes", profile.memory - profile.reserved - used)


def _gpm(moment: Moment) -> Iterator[Reading]:
    phase = moment.phase
    yield Reading("gpu_graphics_active_ratio", phase.utilization)
    yield Reading("gpu_sm_active_ratio", phase.sm)
    yield Reading("gpu_sm_occupancy_ratio", phase.occupancy)
    yield Reading("gpu_dram_active_ratio", phase.dram)
    pipes = {"tensor": phase.tensor, "fp64": 0.0, "fp32": phase.sm / 10, "fp16": 0.0, "int": phase.sm / 8}
    yield from each("gpu_pipe_active_ratio", "pipe", {name: round(at, 4) for name, at in pipes.items()})


def _processes(moment: Moment) -> Iterator[Reading]:
    """The largest are named, the others summed up."""
    most, shares = moment.extras.processes, list(PROCESSES.items())
    found = []
    for place, (name, share) in enumerate(shares[:most]):
        pid = FIRST_PID + len(PROCESSES) * moment.number + place
        found.append((share, {"pid": str(pid), "pid_namespace": NAMESPACE, "name": name, "container": ""}))
    if most and shares[most:]:
        rest = fsum(share for _, share in shares[most:])
        found.append((rest, {"pid": "", "pid_namespace": "", "name": "other", "container": ""}))
    for share, labels in found:
        yield Reading("gpu_process_memory_bytes", share * _used_bytes(moment) // 1, labels)
        if not moment.profile.instances:
            used = round(share * moment.phase.utilization, 2)
            yield Reading("gpu_process_sm_utilization_ratio", used, labels)


ACTIVITY = (
    Part("GetUtilizationRates", Tier.FAST, _utilization),
    one(
        "GetSamples",
        Tier.FAST,
        "gpu_utilization_window_max_ratio",
        lambda moment: min(1.0, round(moment.phase.utilization + 0.02, 2)),
    ),
    Part(
        "GetEngineUtilization",
        Tier.FAST,
        lambda _: each("gpu_engine_utilization_ratio", "engine", dict.fromkeys(ENGINES, 0.0)),
    ),
    Part("GetMemoryInfo", Tier.FAST, _memory),
    Part("GpmQueryDeviceSupport", Tier.FAST, _gpm),
    Part(
        "GetComputeRunningProcesses",
        Tier.SLOW,
        lambda _: each("gpu_processes", "type", {"compute": len(PROCESSES), "graphics": 0, "mps": 0}),
    ),
    Part("GetProcessUtilization", Tier.SLOW, _processes),
)

LANES = 16.0
KIB = 1024
"""The driver counts NVLink's bytes in these."""
REPLAY_OF, RECOVERY_OF = 10, 100
"""How many bad packets it takes."""
ALL_LINKS_ERRORS = ("crc_flit", "crc_data", "replay", "recovery", "ecc")
EACH_LINK_S_ERRORS = ("crc", "replay", "recovery")
JOINED = 3


def _pcie_link(moment: Moment) -> Iterator[Reading]:
    generation = float(moment.profile.pcie)
    yield from each("gpu_pcie_link_generation", "kind", dict.fromkeys(("current", "max"), generation))
    yield from each("gpu_pcie_link_width", "kind", dict.fromkeys(("current", "max"), LANES))


def _pcie_rate(moment: Moment) -> Iterator[Reading]:
    if moment.profile.pcie_sampled and not moment.extras.pcie:
        return
    rate = moment.phase.pcie * 2 ** (moment.profile.pcie - 5)
    yield Reading("gpu_pcie_transmit_bytes_per_second", 0.4 * rate // 1)
    yield Reading("gpu_pcie_receive_bytes_per_second", rate // 1)


def _links(moment: Moment) -> list[dict[str, str]]:
    """The labels of all links together, or of each by itself."""
    return [{"link": str(link)} for link in range(moment.profile.links)] if moment.extras.links else [{}]


def _nvlink(moment: Moment) -> Iterator[Reading]:
    yield from each("gpu_nvlink_links", "state", {"active": float(moment.profile.links), "inactive": 0.0})
    sent, links = moment.total(lambda phase: phase.nvlink) * moment.profile.nvlink, _links(moment)
    for direction in ("transmit", "receive"):
        for labels in links:
            carried = sent / len(links) // KIB * KIB
            yield Reading(f"gpu_nvlink_{direction}_bytes_total", carried, labels)


def _nvlink_errors(moment: Moment) -> Iterator[Reading]:
    """The first link is the bad one. Of a single link its driver reports fewer kinds."""
    kinds = EACH_LINK_S_ERRORS if moment.extras.links else ALL_LINKS_ERRORS
    for place, labels in enumerate(_links(moment)):
        bad = 0 if place else moment.link_errors
        counts = {"replay": bad // REPLAY_OF, "recovery": bad // RECOVERY_OF, kinds[0]: bad}
        for kind in kinds:
            yield Reading("gpu_nvlink_errors_total", counts.get(kind, 0), {"type": kind, **labels})


LINKS = (
    Part("GetCurrPcieLinkGeneration", Tier.SLOW, _pcie_link),
    Part("GetPcieThroughput", Tier.FAST, _pcie_rate),
    one("GetPcieReplayCounter", Tier.SLOW, "gpu_pcie_replays_total", lambda _: 0),
    Part("GetNvLinkState", Tier.FAST, _nvlink),
    Part("GetNvLinkErrorCounter", Tier.SLOW, _nvlink_errors),
    one("GetGpuFabricInfo", Tier.SLOW, "gpu_fabric_state", lambda _: JOINED),
)

RESET = 1


def _ecc(moment: Moment) -> Iterator[Reading]:
    counts = {"corrected": 0.0, "uncorrected": float(moment.memory_errors)}
    yield from each("gpu_ecc_errors_total", "type", counts)
    yield from each("gpu_ecc_volatile_errors_total", "type", counts)


def _rows(moment: Moment) -> Iterator[Reading]:
    """The card has set aside another row for each bad one."""
    counts = {"correctable": 0.0, "uncorrectable": float(moment.memory_errors)}
    return each("gpu_remapped_rows_total", "cause", counts)


def _row_state(moment: Moment) -> Iterator[Reading]:
    """It uses those from the next reset on."""
    yield Reading("gpu_row_remap_pending", moment.memory_errors > 0)
    yield Reading("gpu_row_remap_failed", 0)


HEALTH = (
    Part("GetTotalEccErrors", Tier.SLOW, _ecc),
    Part("GetRemappedRows", Tier.SLOW, _rows),
    Part("RowRemapState", Tier.SLOW, _row_state),
    one(
        "RecoveryAction",
        Tier.SLOW,
        "gpu_recovery_action",
        lambda moment: RESET if moment.memory_errors else 0,
    ),
)

RESERVED = 2**25
"""What the driver reserves of each instance for itself."""


def _instances(moment: Moment) -> Iterator[Reading]:
    for instance in moment.profile.instances:
        labels = {
            "gpu_instance_id": str(instance.number),
            "compute_instance_id": "0",
            "profile": instance.profile,
            "mig_uuid": uuid("MIG", moment.seed, moment.number, instance.number),
        }
        yield Reading("gpu_mig_info", 1, labels)


def _instance_memory(moment: Moment) -> Iterator[Reading]:
    """What is used of the board is used in its instances, in each as much as it is large."""
    whole = sum(each.memory for each in moment.profile.instances)
    for instance in moment.profile.instances:
        used = _used_bytes(moment) * instance.memory // whole
        free = instance.memory - RESERVED - used
        parts = {"total": instance.memory, "used": used, "free": free, "reserved": RESERVED}
        for part, value in parts.items():
            yield Reading(f"gpu_mig_memory_{part}_bytes", value, {"gpu_instance_id": str(instance.number)})


INSTANCES = (
    Part("GetMigDeviceHandleByIndex", Tier.SLOW, _instances),
    Part("GetMemoryInfo(mig)", Tier.FAST, _instance_memory),
)

PARTS: tuple[Part, ...] = (*BOARD, *MODES, *ACTIVITY, *LINKS, *HEALTH, *INSTANCES)


class DemoCard:
    """``begin`` is the card's first moment; ``seconds`` returns how long the machine has been at work."""

    def __init__(self, begin: Moment, seconds: Callable[[], float]) -> None:
        self.number = begin.number
        self.uuid = uuid("GPU", begin.seed, begin.number)
        self.quantities: Sequence[Quantity] = [
            Quantity(part.call, part.tier, partial(self._read, part))
            for part in PARTS
            if part.call not in begin.profile.lacks
        ]
        self._begin = begin
        self._seconds = seconds

    def find(self) -> None:
        """It never was lost."""

    def _read(self, part: Part) -> Iterator[Reading]:
        at = max(0.0, self._seconds() - LAG_SECONDS * self.number)
        for reading in part.read(self._begin._replace(seconds=at)):
            if f"{part.call}({','.join(reading.labels.values())})" not in self._begin.profile.lacks:
                yield reading

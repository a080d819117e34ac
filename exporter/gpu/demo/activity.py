"""How busy a simulated card is, and who uses it."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.part import Part, each

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


def _window_max(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_utilization_window_max_ratio", min(1.0, round(moment.phase.utilization + 0.02, 2)))


def _engines(_: Moment) -> Iterator[Reading]:
    return each("gpu_engine_utilization_ratio", "engine", dict.fromkeys(ENGINES, 0.0))


def _memory(moment: Moment) -> Iterator[Reading]:
    profile = moment.profile
    used = used_bytes(moment)
    yield Reading("gpu_memory_total_bytes", profile.memory)
    yield Reading("gpu_memory_reserved_bytes", profile.reserved)
    yield Reading("gpu_memory_used_bytes", used)
    yield Reading("gpu_memory_free_bytes", profile.memory - profile.reserved - used)


def used_bytes(moment: Moment) -> float:
    """Memory of the board that programs hold."""
    free = moment.profile.memory - moment.profile.reserved
    return free * (moment.phase.memory + moment.jitter / 4) // 1


def _gpm(moment: Moment) -> Iterator[Reading]:
    phase = moment.phase
    yield Reading("gpu_graphics_active_ratio", phase.utilization)
    yield Reading("gpu_sm_active_ratio", phase.sm)
    yield Reading("gpu_sm_occupancy_ratio", phase.occupancy)
    yield Reading("gpu_dram_active_ratio", phase.dram)
    pipes = {"tensor": phase.tensor, "fp64": 0.0, "fp32": phase.sm / 10, "fp16": 0.0, "int": phase.sm / 8}
    yield from each("gpu_pipe_active_ratio", "pipe", {name: round(at, 4) for name, at in pipes.items()})


def _process_counts(_: Moment) -> Iterator[Reading]:
    counts = {"compute": float(len(PROCESSES)), "graphics": 0.0, "mps": 0.0}
    return each("gpu_processes", "type", counts)


def _processes(moment: Moment) -> Iterator[Reading]:
    """The largest are named, the others summed up."""
    most = moment.extras.processes
    shares = list(PROCESSES.items())
    for place, (name, share) in enumerate(shares[:most]):
        pid = FIRST_PID + len(PROCESSES) * moment.number + place
        labels = {"pid": str(pid), "pid_namespace": NAMESPACE, "name": name, "container": ""}
        yield from _process(moment, share, labels)
    if most and shares[most:]:
        rest = fsum(share for _, share in shares[most:])
        yield from _process(moment, rest, {"pid": "", "pid_namespace": "", "name": "other", "container": ""})


def _process(moment: Moment, share: float, labels: dict[str, str]) -> Iterator[Reading]:
    yield Reading("gpu_process_memory_bytes", share * used_bytes(moment) // 1, labels)
    if not moment.profile.instances:
        used = round(share * moment.phase.utilization, 2)
        yield Reading("gpu_process_sm_utilization_ratio", used, labels)


PARTS = (
    Part("GetUtilizationRates", Tier.FAST, _utilization),
    Part("GetSamples", Tier.FAST, _window_max),
    Part("GetEngineUtilization", Tier.FAST, _engines),
    Part("GetMemoryInfo", Tier.FAST, _memory),
    Part("GpmQueryDeviceSupport", Tier.FAST, _gpm),
    Part("GetComputeRunningProcesses", Tier.SLOW, _process_counts),
    Part("GetProcessUtilization", Tier.SLOW, _processes),
)

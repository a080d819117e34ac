"""How a simulated card is set up."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.part import Part, each


def _state(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_performance_state", moment.profile.state)


def _compute(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_compute_mode", 0)


def _persistence(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_persistence_mode", moment.profile.persistence)


def _mig(moment: Moment) -> Iterator[Reading]:
    yield Reading("gpu_mig_mode", bool(moment.profile.instances))


def _ecc(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_ecc_mode", 1)


def _fans(moment: Moment) -> Iterator[Reading]:
    speed = round(0.3 + 0.4 * moment.phase.power, 2)
    return each("gpu_fan_speed_ratio", "fan", {str(fan): speed for fan in range(moment.profile.fans)})


PARTS = (
    Part("GetPerformanceState", Tier.FAST, _state),
    Part("GetComputeMode", Tier.SLOW, _compute),
    Part("GetPersistenceMode", Tier.SLOW, _persistence),
    Part("GetMigMode", Tier.SLOW, _mig),
    Part("GetEccMode", Tier.SLOW, _ecc),
    Part("GetFanSpeed", Tier.FAST, _fans),
)

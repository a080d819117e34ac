"""What the simulated cards are, and what such a card does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter.gpu.backend import PROFILES

GIB = 2.0**30
MIB = 2.0**20


class Instance(NamedTuple):
    """A part of a card that is split: its number, profile, and memory in bytes."""

    number: int
    profile: str
    memory: float


class Profile(NamedTuple):
    """A kind of card, ``gpus`` of them in a machine.

    Memory in bytes, power in watts, clocks in hertz, thresholds in degrees Celsius; ``margin_to`` is the
    threshold to which the margin is reported. ``nvlink`` is the links' speed as a share of the fastest ones';
    ``xid`` the error that a sick card reports; ``lacks`` the parts that such a card does not have, or what
    of a part, by its labels.
    """

    name: str
    gpus: int
    architecture: str
    compute_capability: str
    memory: float
    reserved: float
    least_power: float
    most_power: float
    clocks: Mapping[str, float]
    thresholds: Mapping[str, float]
    margin_to: str
    pcie: int
    lacks: frozenset[str]
    links: int = 0
    nvlink: float = 0.0
    fans: int = 0
    state: int = 0
    persistence: int = 1
    pcie_sampled: bool = False
    xid: int = 48
    instances: tuple[Instance, ...] = ()


H200 = Profile(
    name="simulated H200",
    gpus=PROFILES["h200"],
    architecture="hopper",
    compute_capability="9.0",
    memory=150_754_820_096.0,
    reserved=643_825_664.0,
    least_power=200.0,
    most_power=700.0,
    clocks={"graphics": 1.98e9, "sm": 1.98e9, "memory": 3.201e9, "video": 1.545e9},
    thresholds={"shutdown": 95.0, "slowdown": 89.0, "gpu_max": 87.0},
    margin_to="gpu_max",
    pcie=5,
    links=18,
    nvlink=1.0,
    lacks=frozenset(),
)
A100 = Profile(
    name="simulated A100",
    gpus=PROFILES["a100"],
    architecture="ampere",
    compute_capability="8.0",
    memory=80 * GIB,
    reserved=616 * MIB,
    least_power=100.0,
    most_power=400.0,
    clocks={"graphics": 1.41e9, "sm": 1.41e9, "memory": 1.593e9, "video": 1.29e9},
    thresholds={"shutdown": 92.0, "slowdown": 89.0, "gpu_max": 85.0},
    margin_to="slowdown",
    pcie=4,
    pcie_sampled=True,
    links=12,
    nvlink=2 / 3,
    lacks=frozenset({"GetGpuFabricInfo", "GpmQueryDeviceSupport"}),
)
A100_MIG = A100._replace(
    gpus=PROFILES["a100-mig"],
    lacks=A100.lacks
    | {
        "GetUtilizationRates",
        "GetSamples",
        "GetEngineUtilization",
        "GetTotalEccErrors(uncorrected)",
        "GetRemappedRows",
    },
    instances=(
        Instance(1, "3g.40gb", 40192 * MIB),
        Instance(3, "2g.20gb", 19968 * MIB),
        Instance(5, "2g.20gb", 19968 * MIB),
    ),
)
RTX4080 = Profile(
    name="simulated RTX 4080",
    gpus=PROFILES["rtx4080"],
    architecture="ada",
    compute_capability="8.9",
    memory=17_171_480_576.0,
    reserved=379 * MIB,
    least_power=150.0,
    most_power=320.0,
    clocks={"graphics": 3.105e9, "sm": 3.105e9, "memory": 11.201e9, "video": 2.415e9},
    thresholds={"shutdown": 98.0, "slowdown": 95.0, "gpu_max": 90.0},
    margin_to="slowdown",
    pcie=4,
    pcie_sampled=True,
    fans=2,
    state=2,
    persistence=0,
    xid=119,
    lacks=frozenset(
        {
            "GetEngineUtilization(jpeg)",
            "GetMaxClockInfo(video)",
            "MemoryTemperature",
            "GetMigMode",
            "GetEccMode",
            "GetTotalEccErrors",
            "GetRemappedRows",
            "RowRemapState",
            "GetNvLinkState",
            "GetNvLinkErrorCounter",
            "GetGpuFabricInfo",
            "RecoveryAction",
            "GpmQueryDeviceSupport",
        }
    ),
)

KNOWN: Mapping[str, Profile] = {"h200": H200, "a100": A100, "a100-mig": A100_MIG, "rtx4080": RTX4080}
"""By the names of ``--profile``."""

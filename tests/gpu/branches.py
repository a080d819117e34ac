"""NVIDIA's drivers of the last years: what their library lacks of the newest, and what it then tells."""

from __future__ import annotations

from typing import NamedTuple

from tests.gpu.driver import Driver
from tests.gpu.expected import H200, KINDS, SUM, Values

GONE_WITH_CUDA_14 = (
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetGpuFabricInfo",
)
_SINCE_550 = ("nvmlDeviceGetGpuFabricInfoV",)
_SINCE_570 = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature")
_NEW_IN_570 = frozenset(
    {"gpu_recovery_action", "gpu_temperature_margin_celsius", "gpu_temperature_threshold_celsius"}
)


class Branch(NamedTuple):
    """A driver. ``lacks``: metrics of an H200 that it cannot tell; ``sum``: nor kinds of throttling."""

    version: str
    missing: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()
    sum: bool = False

    def load(self, driver: Driver) -> None:
        """Have this driver from now on, with eight H200."""
        driver.install(*self.missing)
        driver.tell("gpus=8", f"driver={self.version}")

    @property
    def reported(self) -> Values:
        """What it tells of an H200."""
        values = {key: value for key, value in H200.items() if key[0] not in self.lacks and key not in KINDS}
        return {**values, **(SUM if self.sum else KINDS)}


BRANCHES = {
    "535": Branch("535.183.01", (*_SINCE_550, *_SINCE_570), _NEW_IN_570, sum=True),
    "550": Branch("550.163.01", _SINCE_570, _NEW_IN_570, sum=True),
    "570": Branch("570.211.01", sum=True),
    "575": Branch("575.57.08"),
    "580.65": Branch("580.65.06"),
    "580.76": Branch("580.76.05", sum=True),
    "580.82": Branch("580.82.09"),
    "590": Branch("590.48.01"),
    "unknown": Branch("a driver that nobody knows", lacks=frozenset({"gpu_recovery_action"}), sum=True),
}
"""The library answers at the other drivers' numbers for throttling with 77 s of something else."""

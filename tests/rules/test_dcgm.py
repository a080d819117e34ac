"""What is recorded under NVIDIA's names is what our exporter says, once for each GPU."""

from __future__ import annotations

from pathlib import Path

from exporter.gpu.table import FAMILIES
from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.cards import HERE, NEIGHBOUR, OTHER_BOX, TWICE
from tests.rules.promtool import Group
from tests.rules.series import selector
from tests.rules.stack import Labels

AT = 62
OURS = {
    "gpu_temperature_celsius": ({"sensor": "gpu"}, 67, "DCGM_FI_DEV_GPU_TEMP", 67),
    "gpu_power_watts": ({}, 612.5, "DCGM_FI_DEV_POWER_USAGE", 612.5),
    "gpu_clock_hertz": ({"domain": "sm"}, 1.5e9, "DCGM_FI_DEV_SM_CLOCK", 1500),
    "gpu_utilization_ratio": ({}, 0.75, "DCGM_FI_DEV_GPU_UTIL", 75),
    "gpu_memory_used_bytes": ({}, 3 * 2**30, "DCGM_FI_DEV_FB_USED", 3072),
    "gpu_pipe_active_ratio": ({"pipe": "tensor"}, 0.25, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.25),
}
"""Metric, its labels and value, and what it is called and is worth there: MHz, percent, MiB."""
SHOWN = [name for _, _, name, _ in OURS.values()]


def _page(labels: Labels) -> dict[str, str]:
    info = selector(
        "gpu_info", **labels, name="NVIDIA H200", pci_bus_id="00000000:1B:00.0", vbios_version="1"
    )
    reported = {
        selector(name, **labels, **more): f"{value}+0x99" for name, (more, value, _, _) in OURS.items()
    }
    others = {
        selector("gpu_temperature_celsius", **labels, sensor="memory"): "90+0x99",
        selector("gpu_clock_hertz", **labels, domain="memory"): "3e9+0x99",
        selector("gpu_pipe_active_ratio", **labels, pipe="fp64"): "0.9+0x99",
    }
    return {info: "1+0x99", **reported, **others}


def _one(name: str, labels: Labels) -> str:
    """The one series of a GPU, as NVIDIA's exporter labels it."""
    return selector(
        name,
        instance=labels["instance"],
        gpu=labels["gpu"],
        UUID=labels["uuid"],
        device=f"nvidia{labels['gpu']}",
        modelName="NVIDIA H200",
        pci_bus_id="00000000:1B:00.0",
    )


def _check(promtool: Path, folder: Path, series: dict[str, str], values: dict[str, float]) -> None:
    """Fail unless these expressions have these values, once the rules have recorded."""
    group = Group("dcgm", series, [], {(expression, AT): value for expression, value in values.items()})
    unit.check(promtool, unit.write(folder, "dcgm", rendered.recorded("dcgm"), [group]))


def test_each_gpu_is_reported_once_in_nvidias_units_and_labels(promtool: Path, tmp_path: Path) -> None:
    series = {**_page(HERE), **_page(NEIGHBOUR), **_page(OTHER_BOX), **_page(TWICE)}
    values = {
        f"sum({_one(name, labels)})": value
        for labels in (HERE, NEIGHBOUR, OTHER_BOX)
        for _, _, name, value in OURS.values()
    }
    counts = {f"count({name})": 3.0 for name in SHOWN}
    _check(promtool, tmp_path, series, {**values, **counts})


def test_a_gpu_that_another_exporter_reports_is_not_reported_twice(promtool: Path, tmp_path: Path) -> None:
    theirs = {
        selector(name, job="dcgm", instance="a:9400", gpu="0", UUID=HERE["uuid"]): "7+0x99" for name in SHOWN
    }
    counts = {f'count({name}{{UUID="{HERE["uuid"]}"}})': 1.0 for name in SHOWN}
    others = {f'count({name}{{UUID="{NEIGHBOUR["uuid"]}"}})': 1.0 for name in SHOWN}
    _check(promtool, tmp_path, {**_page(HERE), **_page(NEIGHBOUR), **theirs}, {**counts, **others})


def test_every_metric_that_is_recorded_is_served() -> None:
    assert OURS.keys() <= FAMILIES.keys()
    assert [rule["record"] for rule in rendered.recorded("dcgm")] == SHOWN

"""docs/metrics.md says of the GPU exporter what it serves, no less and no more."""

from __future__ import annotations

import re
from collections.abc import Callable

from exporter.gpu.contract import NVML_REASONS
from exporter.gpu.families import BOX_FAMILIES, GPU_FAMILIES
from tests.gpu.driver import Driver
from tests.gpu.exporter import ROOT, Exporter

PAGE = (ROOT / "docs/metrics.md").read_text().partition("\n## GPUs\n")[2]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)
UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_watts": "watts",
    "_joules": "joules",
    "_hertz": "hertz",
    "_celsius": "degrees C",
}


def test_every_metric_is_documented_with_type_and_labels(
    driver: Driver, start: Callable[..., Exporter]
) -> None:
    driver.tell("gpus=8", "error=GetClockInfo@3:3", "error=GetMemoryInfo@3:999", "xid=3:79:1")
    rare = ("gpu_xid_last_timestamp_seconds", "gpu_utilization_window_max_ratio")
    found = start("--interval=0.5").until(lambda found: all(map(found.all, rare)))
    served: dict[str, set[str]] = {}
    for name, labels in found.samples:
        if not name.startswith("process_"):
            served[name] = served.get(name, set()) | {label for label, _ in labels}
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, _, labels in ROW.findall(PAGE)}

    assert documented == served
    types = {family.name: family.type for family in (*GPU_FAMILIES, *BOX_FAMILIES)}
    assert {name: kind for name, kind, _, _ in ROW.findall(PAGE)} == types


def test_units_in_names_are_those_of_the_page() -> None:
    for name, _, unit, _ in ROW.findall(PAGE):
        for ending, wanted in UNITS.items():
            if name.removesuffix("_total").endswith(ending):
                assert unit == wanted, name


def test_every_reason_is_explained_on_the_page_and_to_who_reads_the_log() -> None:
    for reason, text in NVML_REASONS.items():
        assert f"`{reason}`" in PAGE, reason
        assert text.endswith(".")

"""docs/metrics.md says of the GPU exporter what it serves, no less and no more."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from exporter.gpu.table import FAMILIES
from tests.gpu.driver import Driver
from tests.gpu.expected import CARDS
from tests.gpu.exporter import ROOT, running

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


EVERYTHING = ("--interval=0.5", "--processes=2", "--serial=true", "--links=true", "--pcie=true")
RARE = ("gpu_xid_last_timestamp_seconds", "gpu_exporter_collect_errors_total", "gpu_exporter_call_hung")
OF_THE_FIRST = ("gpu_process_sm_utilization_ratio", "gpu_mig_sm_active_ratio")
USED = ("process=0:compute:5000001:300:20", "mig=7", "instance=7:0:7:0:1g.18gb")
BEFORE_AMPERE = tuple(f"field={number}:1:1" for number in (29, 30, 31))


def test_every_metric_is_documented_with_type_and_labels(tmp_path: Path) -> None:
    """All that the cards together give, with all that is given on request."""
    with ExitStack() as stack:
        exporters = [
            stack.enter_context(running(*EVERYTHING, environment=on(tmp_path / card, card))) for card in CARDS
        ]
        found = [exporter.until(lambda found: all(map(found.all, RARE))) for exporter in exporters]
        exporters[0].until(lambda found: all(map(found.all, OF_THE_FIRST)))
        found += [exporter.scrape() for exporter in exporters]
    served: dict[str, set[str]] = {}
    for name, labels in (sample for scrape in found for sample in scrape.samples):
        if not name.startswith("process_"):
            served[name] = served.get(name, set()) | {label for label, _ in labels}
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, _, labels in ROW.findall(PAGE)}

    assert documented == served
    types = {family.name: family.type for family in FAMILIES.values()}
    assert {name: kind for name, kind, _, _ in ROW.findall(PAGE)} == types


def on(folder: Path, card: str) -> dict[str, str]:
    """The variables of a program that finds this card, with something that does not work."""
    folder.mkdir()
    driver = Driver(folder)
    driver.install()
    broken = ("error=GetMemoryInfo@3:999", "hang=GetPowerUsage@5", "xid=3:79:1")
    driver.tell("gpus=8", f"profile={card}", *broken, *USED, *BEFORE_AMPERE)
    return driver.environment


def test_units_in_names_are_those_of_the_page() -> None:
    for name, _, unit, _ in ROW.findall(PAGE):
        for ending, wanted in UNITS.items():
            if name.removesuffix("_total").endswith(ending):
                assert unit == wanted, name

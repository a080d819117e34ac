"""docs/metrics.md and docs/gpu.md say of the GPU exporter what it does, no less and no more."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from exporter.gpu.__main__ import command_line
from exporter.gpu.backend import NVML_REASONS, PROFILES
from exporter.gpu.table import FAMILIES
from stepwatch.rules.alerting import recorded
from tests.gpu.driver import Driver
from tests.gpu.expected import CARDS
from tests.gpu.exporter import ROOT, running
from tools.gpu_check.__main__ import BEGIN, END

METRICS = (ROOT / "docs/metrics.md").read_text().partition("\n## GPUs\n")[2]
GUIDE = (ROOT / "docs/gpu.md").read_text()
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
SAID = (
    *("error=GetMemoryInfo@3:999", "hang=GetPowerUsage@5", "xid=3:79:1"),  # something that does not work
    *("process=0:compute:5000001:300:20", "mig=7", "instance=7:0:7:0:1g.18gb"),
    *(f"field={number}:1:1" for number in (29, 30, 31)),  # before Ampere
)


def section(heading: str) -> str:
    return GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_metric_is_documented_with_type_unit_and_labels(tmp_path: Path) -> None:
    """All that the cards together give, with all that is given on request."""
    with ExitStack() as stack:
        exporters = []
        for card in CARDS:
            (tmp_path / card).mkdir()
            driver = Driver(tmp_path / card)
            driver.install()
            driver.tell("gpus=8", f"profile={card}", *SAID)
            exporters.append(stack.enter_context(running(*EVERYTHING, environment=driver.environment)))
        found = [exporter.until(lambda found: all(map(found.all, RARE))) for exporter in exporters]
        exporters[0].until(lambda found: all(map(found.all, OF_THE_FIRST)))
        found += [exporter.scrape() for exporter in exporters]
    served: dict[str, set[str]] = {}
    for name, labels in (sample for scrape in found for sample in scrape.samples):
        if not name.startswith("process_"):
            served[name] = served.get(name, set()) | {label for label, _ in labels}
    rows = ROW.findall(METRICS)

    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, _, _, labels in rows} == served
    assert {name: kind for name, kind, _, _ in rows} == {name: each.type for name, each in FAMILIES.items()}
    for name, _, unit, _ in rows:
        for ending, wanted in UNITS.items():
            assert unit == wanted or not name.removesuffix("_total").endswith(ending), name


def test_every_reason_flag_and_profile_is_in_the_guide_and_every_metric_there_exists() -> None:
    for reason in NVML_REASONS.keys() - {"ok"}:
        assert f"`{reason}`" in section("When gpu_exporter_nvml_up is 0"), reason
    assert all(f"`{profile}`" in section("Flags") for profile in PROFILES)
    rows = [line for line in section("Flags").splitlines() if line.startswith("| `--")]
    for name, default in vars(command_line([]).options()).items():
        flag = f"--{name.replace('_', '.' if name.startswith(('log_', 'config_')) else '-')}"
        usual = f"{default:g}" if isinstance(default, float) else str(default).lower()
        if name != "config_file":
            (row,) = (row for row in rows if f"`{flag}`" in row)
            assert ("none" if default in (None, ()) else usual) in row, flag
    named = set(re.findall(r"`(gpu_[a-z_]+|DCGM_\w+)\b(?!\*)", GUIDE)) - {"gpu_mig_memory_"}
    assert named
    assert named <= FAMILIES.keys() | {rule["record"] for rule in recorded()["dcgm"]}
    assert GUIDE.count(BEGIN) == GUIDE.count(END) == 1  # the place for a real card's figures

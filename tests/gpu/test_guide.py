"""docs/gpu.md says to people what the exporter says to programs."""

from __future__ import annotations

import re

from exporter.gpu.__main__ import command_line
from exporter.gpu.backend import NVML_REASONS, PROFILES
from exporter.gpu.table import FAMILIES
from stepwatch.rules.alerting import SHOWN
from tests.gpu.exporter import ROOT
from tools.gpu_check.__main__ import BEGIN, END

PAGE = (ROOT / "docs/gpu.md").read_text()


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_reason_has_a_fix() -> None:
    listed = section("When gpu_exporter_nvml_up is 0")
    for reason in NVML_REASONS.keys() - {"ok"}:
        assert f"`{reason}`" in listed, reason


def test_every_flag_is_reported_with_its_default() -> None:
    rows = [line for line in section("Flags").splitlines() if line.startswith("| `--")]
    defaults = vars(command_line([]).options())
    del defaults["config_file"]
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '.' if name.startswith('log_') else '-')}"
        (row,) = (row for row in rows if f"`{flag}`" in row)
        assert plain(default) in row, flag


def plain(default: object) -> str:
    """A default as people write it."""
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default in (None, ()) else str(default).lower()


def test_every_metric_that_is_named_exists() -> None:
    known = {family.name for family in FAMILIES.values()}
    known |= SHOWN.keys()
    named = set(re.findall(r"`(gpu_[a-z_]+|DCGM_\w+)\b(?!\*)", PAGE)) - {"gpu_mig_memory_"}

    assert named
    assert named <= known


def test_every_profile_is_reported() -> None:
    assert all(f"`{profile}`" in section("Flags") for profile in PROFILES)


def test_the_place_for_a_real_card_s_figures_is_there() -> None:
    assert PAGE.count(BEGIN) == PAGE.count(END) == 1

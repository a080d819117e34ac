"""`make gpu-check`, with programs in place of `nvidia-smi` and of NVIDIA's library."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import ROOT
from tools.gpu_check.readings import Page, Round, board_value
from tools.gpu_check.rows import ROWS
from tools.gpu_check.verdicts import findings, verdicts

PAGE = "# GPUs\n\n<!-- made by `make gpu-check` -->\nno card so far\n<!-- end -->\n\n## Next\n"


@pytest.fixture(name="driver")
def _driver(tmp_path: Path) -> Driver:
    driver = Driver(tmp_path)
    driver.install()
    driver.tell("gpus=2")
    return driver


Check = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="check")
def _check(tmp_path: Path, driver: Driver) -> Check:
    """Run the check; gives its exit code, what it said, and the page."""

    def check(says: str | None, code: int = 0) -> tuple[int, str, str]:
        page, program = tmp_path / "gpu.md", tmp_path / "bin" / "nvidia-smi"
        page.write_text(PAGE)
        program.parent.mkdir(exist_ok=True)
        if says is not None:
            (tmp_path / "says").write_text(says)
            program.write_text(f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && cat {tmp_path}/says\nexit {code}\n")
            program.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-m", "tools.gpu_check", f"--page={page}"],
            cwd=ROOT,
            env={**driver.environment, "PATH": f"{program.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout, page.read_text()

    return check


def board(gpu: int, **other: str) -> str:
    """What nvidia-smi says of one GPU of the stand-in library; ``other`` in place of it."""
    values = {
        "temperature/gpu_temp": f"{50 + gpu} C",
        "temperature/memory_temp": f"{60 + gpu} C",
        "temperature/gpu_temp_tlimit": f"{37 - gpu} C",
        "fb_memory_usage/total": "143771 MiB",
        "fb_memory_usage/reserved": "614 MiB",
        "fb_memory_usage/used": f"{1024 * (10 + gpu)} MiB",
        "gpu_power_readings/average_power_draw": f"{300 + gpu}.00 W",
        "gpu_power_readings/current_power_limit": "650.00 W",
        "utilization/gpu_util": f"{40 + gpu} %",
        "clocks/sm_clock": "1710 MHz",
        "max_clocks/sm_clock": "1981 MHz",
        **{path.replace("__", "/"): text for path, text in other.items()},
    }
    return f"<gpu>{elements({'uuid': uuid(gpu), 'product_name': 'NVIDIA H200', **values})}</gpu>"


def elements(values: dict[str, str]) -> str:
    return "".join(
        "".join(f"<{name}>" for name in path.split("/"))
        + text
        + "".join(f"</{name}>" for name in reversed(path.split("/")))
        for path, text in values.items()
    )


def log(*boards: str) -> str:
    head = '<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">'
    return f"{head}<nvidia_smi_log>{''.join(boards)}</nvidia_smi_log>"


def row_of(said: str, metric: str) -> str:
    (line,) = (line for line in said.splitlines() if line.startswith(f"{metric} "))
    return re.split(r" {2,}", line)[-1]


def test_where_all_say_the_same_it_says_so_and_writes_the_table(check: Check) -> None:
    code, said, page = check(log(board(0), board(1)))

    assert code == 0, said
    assert row_of(said, 'gpu_temperature_celsius{sensor="gpu"}') == "agrees"
    assert row_of(said, 'gpu_clock_max_hertz{domain="sm"}') == "agrees"
    assert "2 x NVIDIA H200, driver 580.95.05" in page
    assert '| `gpu_power_limit_watts{limit="enforced"}` | 650 | 650 |' in page
    assert "plain NVML calls" in page
    assert page.startswith("# GPUs\n")
    assert page.endswith("<!-- end -->\n\n## Next\n")
    assert "no card so far" not in page


def test_a_difference_on_one_gpu_is_reported_and_the_code_is_1(check: Check) -> None:
    code, said, page = check(log(board(0), board(1, max_clocks__sm_clock="1980 MHz")))

    assert code == 1
    assert row_of(said, 'gpu_clock_max_hertz{domain="sm"}') == "differs"
    assert "1981000000 | 1980000000 | 1981000000 | differs |" in page


@pytest.mark.parametrize(
    ("says", "code", "reason"),
    [
        (None, 0, "there is no nvidia-smi"),
        ("NVIDIA-SMI has failed because it could not reach the driver.", 9, "it could not reach the driver."),
        (log(), 0, "nvidia-smi lists none"),
    ],
)
def test_where_there_is_not_a_gpu_it_says_so_and_leaves_the_page(
    check: Check, says: str | None, code: int, reason: str
) -> None:
    found, said, page = check(says, code)

    assert found == 0
    assert said.startswith("No NVIDIA GPU to check here: ")
    assert reason in said
    assert page == PAGE


def test_a_driver_that_cannot_be_used_is_not_a_gpu(check: Check, driver: Driver) -> None:
    driver.tell("gpus=2", "init=9")

    assert "NVML says: Driver Not Loaded" in check(log(board(0)))[1]


def judged(page: str, **values: str) -> dict[str, str]:
    """Verdicts on one GPU of which the page and nvidia-smi say this, by the row's name."""
    return {verdict.row.name: verdict.says for verdict in verdicts([round_of(page, **values)])}


def round_of(page: str, **values: str) -> Round:
    reported = {path.replace("__", "/"): text for path, text in values.items()}
    return Round(Page(page), {"a": Xml.fromstring(f"<gpu>{elements(reported)}</gpu>")}, {})


@pytest.mark.parametrize(
    ("metric", "value", "path", "says", "verdict"),
    [
        ('gpu_clock_event_active{uuid="a",reason="idle"}', 1, "reason_gpu_idle", "Active", "agrees"),
        ('gpu_clock_event_active{uuid="a",reason="idle"}', 0, "reason_gpu_idle", "Active", "differs"),
        ('gpu_power_limit_watts{uuid="a",limit="min"}', 200, "min_power_limit", "200.00 W", "agrees"),
        ('gpu_power_limit_watts{uuid="a",limit="min"}', 200, "min_power_limit", "201.00 W", "differs"),
        ('gpu_utilization_ratio{uuid="a"}', 0.9, "gpu_util", "70 %", "agrees"),
        ('gpu_utilization_ratio{uuid="a"}', 0.9, "gpu_util", "50 %", "differs"),
        ('gpu_utilization_ratio{uuid="a"}', 0.9, "gpu_util", "N/A", "only the exporter"),
        ('gpu_power_watts{uuid="a"}', 300, "power_draw", "340.10 W", "agrees"),
        ('gpu_row_remap_pending{uuid="a"}', 1, "remapped_row_pending", "Yes", "agrees"),
        ('gpu_fabric_state{uuid="a"}', 3, "state", "Completed", "agrees"),
        ('gpu_recovery_action{uuid="a"}', 0, "gpu_recovery_action", "None", "agrees"),
        ('gpu_performance_state{uuid="a"}', 2, "performance_state", "P2", "agrees"),
        ('gpu_pcie_link_width{uuid="a",kind="max"}', 16, "max_link_width", "16x", "agrees"),
        ('gpu_pcie_link_width{uuid="a",kind="max"}', 8, "max_link_width", "16x", "differs"),
        ('gpu_pcie_link_width{uuid="b",kind="max"}', 8, "max_link_width", "16x", "the exporter lacks it"),
    ],
)
def test_values_are_compared_by_kind(metric: str, value: float, path: str, says: str, verdict: str) -> None:
    name = metric.partition("{")[0]
    paths = [way for row in ROWS if row.metric == name for way in row.paths if way.endswith(path)]

    assert set(judged(f"{metric} {value}\n", **{paths[0].replace("/", "__"): says}).values()) == {verdict}


@pytest.mark.parametrize(
    ("ours", "unit"), [(91.4, "counts in nanoseconds"), (91400, "does not count in nanoseconds")]
)
def test_the_unit_of_throttling_is_found_from_nvidia_smi_s_microseconds(ours: float, unit: str) -> None:
    path = "clocks_event_reasons_counters__clocks_event_reasons_counters_sw_power_cap"
    page = f'gpu_clock_event_seconds_total{{uuid="a",reason="power_cap"}} {ours}\n'
    rounds = [round_of(page, **{path: "91403239 us"})]

    assert unit in findings(rounds, verdicts(rounds))[0]


def test_processes_and_gpm_are_reported() -> None:
    page = (
        'gpu_process_memory_bytes{uuid="a",pid="7",name="python",container=""} 1\n'
        'gpu_process_memory_bytes{uuid="a",pid="8",name="",container=""} 1\n'
        'gpu_exporter_unsupported{uuid="a",call="GpmSampleGet",reason="no_permission"} 1\n'
    )
    rounds = [
        round_of(page)._replace(
            boards={"a": Xml.fromstring("<gpu><process_info><pid>7</pid></process_info></gpu>")}
        )
    ]
    reported = "\n".join(findings(rounds, verdicts(rounds)))

    assert "on 0 of 1 GPUs, reason: no_permission." in reported
    assert (
        "1 that both name, 1 that only the exporter does, 0 that only nvidia-smi does; 1 whose name"
        in reported
    )


def test_every_row_has_a_way_to_nvidia_smi_and_no_two_are_the_same() -> None:
    assert all(row.paths for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert board_value(Xml.fromstring("<gpu><a>-8 C</a></gpu>"), ("b", "a")) == -8

"""What the page shows of a GPU, for what NVIDIA's library answers: a table of cases."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.gpu.driver import Driver, uuid
from tests.gpu.expected import CARDS, SHARES, lacking, of, series_of
from tests.gpu.exporter import QUICK, Starting, all_ok
from tests.real import prometheus
from tests.runs.scrape import Scrape

SPLIT = "mig=3 instance=3:0:7:0:1g.18gb instance=3:2:5:0:1c.3g.71gb instance=3:3:5:1:2c.3g.71gb"
"""There is nothing at number 1, and two compute instances share a GPU instance."""
NO_NUMBERS = {94: "1:4294967295", 3: f"2:{2**64 - 1}", 4: f"3:{2**64 - 1}", 5: "6:65535", 6: "5:-1"}
NO_NUMBERS |= {142: "4:-1", 143: "0:nan", 82: "0:inf"}
"""What a driver writes where it has no value, by field."""


class Case(NamedTuple):
    """What the driver says, and what GPU 3 then shows, ``None`` for nothing, by metric and labels.

    ``lacks`` and ``fails`` are reasons by call, ``unasked`` functions that are not called.
    """

    said: str
    shows: Mapping[str, float | None] = {}
    lacks: Mapping[str, str | None] = {}
    fails: Mapping[str, str] = {}
    flags: str = ""
    unasked: tuple[str, ...] = ()


def each(metric: str, **values: float | None) -> dict[str, float | None]:
    return {f"{metric} {label}": value for label, value in values.items()}


CASES = {
    "the highest sample between two readings": Case(
        "", {"gpu_utilization_window_max_ratio": 0.63}, flags="--interval=0.5"
    ),
    "an impossible sample makes the others no less true": Case(
        "odd=808334905",
        {"gpu_utilization_window_max_ratio": 0.43},
        fails={"GetSamples": "garbage"},
        flags="--interval=0.5",
    ),
    "every reason of throttling has its bit": Case(
        f"reasons={0x4 | 0x40 | 0x800}",
        each("gpu_clock_event_active", power_cap=1, hardware_thermal=1, idle=0, display=0, sync_boost=0),
    ),
    "a margin may be used up": Case("margin=-3", {"gpu_temperature_margin_celsius": -3}),
    "the slowest value": Case("latency=12500", {"gpu_exporter_driver_latency_seconds": 0.0125}),
    "links that are down": Case("down=2", each("gpu_nvlink_links", active=16, inactive=2)),
    **{f"fabric {state}": Case(f"fabric={state}", {"gpu_fabric_state": state}) for state in (0, 1, 2)},
    "a card lists what it lacks in few lines": Case(
        "profile=rtx4080 error=GetTotalEnergyConsumption:3",
        {"gpu_energy_joules_total": None, "gpu_sm_active_ratio": None},
        dict.fromkeys(
            (
                *("GetTotalEnergyConsumption", "GetMaxClockInfo(video)", "GetEngineUtilization(jpeg)"),
                *("GetMigMode", "GetEccMode", "GetGpuFabricInfo", "GpmSampleGet"),
                *("FieldValue(memory_temperature)", "FieldValue(ecc)", "FieldValue(row_remap)"),
                *("FieldValue(retired_pages)", "FieldValue(recovery_action)"),
                *("FieldValue(nvlink_count)", "FieldValue(nvlink)"),
            ),
            "not_supported",
        ),
        unasked=("GpmSampleGet",),
    ),
    "of a part of which something is there, what is missing": Case(
        "profile=a100-mig",
        lacks={
            "FieldValue(ecc uncorrected)": "not_supported",
            "FieldValue(ecc corrected)": None,
            "FieldValue(row_remap correctable)": "not_supported",
            "FieldValue(row_remap)": None,
        },
    ),
    # numbered values: of the eight bytes, the library leaves those that the type does not use full of 1s
    "values by type": Case(
        "field=82:0:70 field=94:1:71 field=3:2:72 field=4:3:73 field=5:4:74 field=6:5:75 field=142:6:76",
        {
            "gpu_temperature_celsius memory": 70,
            "gpu_pcie_replays_total": 71,
            **each("gpu_ecc_volatile_errors_total", corrected=72, uncorrected=73),
            **each("gpu_ecc_errors_total", corrected=74, uncorrected=75),
            "gpu_remapped_rows_total correctable": 76,
        },
    ),
    "an unknown type": Case(
        "field=82:7:77",
        {"gpu_temperature_celsius memory": None},
        {"FieldValue(memory_temperature)": "garbage"},
    ),
    "no value": Case(
        " ".join(f"field={number}:{what}" for number, what in NO_NUMBERS.items()),
        {
            **dict.fromkeys(("gpu_pcie_replays_total", "gpu_temperature_celsius memory")),
            **each("gpu_ecc_volatile_errors_total", corrected=None, uncorrected=None),
            **each("gpu_ecc_errors_total", corrected=None, uncorrected=None),
            **each("gpu_remapped_rows_total", correctable=None, uncorrectable=None),
        },
        fails={
            **dict.fromkeys(("FieldValue(pcie_replays)", "FieldValue(memory_temperature memory)"), "garbage"),
            **dict.fromkeys(("FieldValue(row_remap correctable)", "FieldValue(ecc corrected)"), "garbage"),
        },
    ),
    "no value, of functions": Case(
        "power=4294967295 util=4294967295",
        {
            "gpu_power_watts": None,
            "gpu_utilization_ratio": None,
            "gpu_memory_controller_utilization_ratio": 0.3,
        },
        fails={"GetPowerUsage": "garbage", "GetUtilizationRates(gpu_utilization_ratio)": "garbage"},
    ),
    # 4 GiB pass over an NVLink in 10 ms, and 2^32 nanoseconds are 4 s
    "a counter that wraps within seconds": Case(
        "field=138:1:4294967000 field=74:1:4294967000",
        {
            "gpu_nvlink_transmit_bytes_total": None,
            "gpu_nvlink_receive_bytes_total": 13903 * 1024,
            "gpu_clock_event_seconds_total power_cap": None,
        },
        {"FieldValue(throttling power_cap)": "wraps"},
    ),
    "a value that fails": Case(
        "refuse=82:999",
        {"gpu_temperature_celsius memory": None, "gpu_power_instant_watts": 313},
        {"FieldValue(memory_temperature)": None},
        {"FieldValue(memory_temperature memory)": "unknown"},
    ),
    "a value that the driver overlooks": Case("untouched=82:", {"gpu_temperature_celsius memory": None}),
    # a GPU's own counters
    "shares and rates": Case(
        "",
        {
            **{f"gpu_{name}_ratio": (number + 3) / 100 for name, number in SHARES.items()},
            **each("gpu_pipe_active_ratio", tensor=0.08, fp64=0.14, fp32=0.15, fp16=0.16, int=0.07),
            "gpu_pcie_transmit_bytes_per_second": 10 * (20 + 3) * 2**20,
            "gpu_pcie_receive_bytes_per_second": 10 * (21 + 3) * 2**20,
        },
        unasked=("GetPcieThroughput",),
        flags="--pcie=true",
    ),
    "each of them has its own error": Case(
        "gpm=1:nan gpm=3:150 gpm=10:100.3 gpm=20:-1 gpmerror=11:3",
        {
            "gpu_dram_active_ratio": 1,
            **dict.fromkeys(("gpu_graphics_active_ratio", "gpu_sm_occupancy_ratio")),
            "gpu_pcie_transmit_bytes_per_second": None,
            **each("gpu_pipe_active_ratio", fp64=None, fp32=0.15),
        },
        {"GpmSampleGet(fp64)": "not_supported", "GpmSampleGet": None},
        dict.fromkeys(
            (
                "GpmSampleGet(gpu_graphics_active_ratio)",
                "GpmSampleGet(gpu_sm_occupancy_ratio)",
                "GpmSampleGet(gpu_pcie_transmit_bytes_per_second)",
            ),
            "garbage",
        ),
    ),
    "only an administrator may read them": Case(
        "error=GpmSampleGet:4", {"gpu_sm_active_ratio": None}, {"GpmSampleGet": "no_permission"}
    ),
    "PCIe before Hopper, on request": Case(
        "profile=a100",
        {"gpu_pcie_transmit_bytes_per_second": 1003e3, "gpu_pcie_receive_bytes_per_second": 2003e3},
        flags="--pcie=true",
    ),
    "PCIe before Hopper": Case(
        "profile=a100", {"gpu_pcie_transmit_bytes_per_second": None}, unasked=("GetPcieThroughput",)
    ),
    # each NVLink by itself, and nothing twice
    **{
        f"links of {card}": Case(
            f"profile={card}",
            {
                "gpu_nvlink_transmit_bytes_total": None,
                f"gpu_nvlink_transmit_bytes_total {count - 1}": (sent + 100000 * (count - 1)) * unit,
                f"gpu_nvlink_transmit_bytes_total {count}": None,
                f"gpu_nvlink_errors_total {count - 1},{kind}": errors + 100000 * (count - 1),
                f"gpu_nvlink_errors_total {kind}": None,
                "gpu_nvlink_errors_total crc_flit": None,
            },
            flags="--links=true",
        )
        for card, count, sent, unit, kind, errors in (
            ("h200", 18, 13803, 1024, "recovery", 16203),
            ("a100", 12, 13803, 1024, "recovery", 16203),
            ("b200", 18, 20203, 1, "symbol", 22103),
        )
    },
    **{
        f"{count} links": Case(
            f"field=91:1:{count}",
            {"gpu_nvlink_transmit_bytes_total 0": None, "gpu_nvlink_links active": None},
            fails={"FieldValue(nvlink_count)": "garbage"},
            flags="--links=true",
        )
        for count in (4294967295, 4294967294, 65)
    },
    # MIG: each instance once, and nothing of the board twice
    "a split GPU": Case(
        SPLIT,
        {
            **{f"gpu_mig_memory_total_bytes {part}": size << 30 for part, size in ((7, 18), (5, 71))},
            **{f"gpu_mig_memory_used_bytes {part}": part << 30 for part in (7, 5)},
            **{f"gpu_mig_memory_reserved_bytes {part}": 643825664 for part in (7, 5)},
            "gpu_mig_memory_free_bytes 7": (11 << 30) - 643825664,
            "gpu_mig_sm_active_ratio 7": 0.12,
            "gpu_mig_sm_active_ratio 5": 0.10,
            "gpu_mig_pipe_active_ratio 7,tensor": 0.15,
            "gpu_memory_used_bytes": 13 << 30,
            "gpu_power_watts": 303,
            **dict.fromkeys(("gpu_utilization_ratio", "gpu_sm_active_ratio", "gpu_pipe_active_ratio tensor")),
            "gpu_mig_pcie_transmit_bytes_per_second 7": None,
        },
        dict.fromkeys(("GetUtilizationRates", "GetSamples", "GpmSampleGet"), "not_supported"),
    ),
    "a split GPU without permission": Case(
        f"{SPLIT} unprivileged=1",
        {"gpu_memory_used_bytes": None, "gpu_mig_memory_used_bytes 7": 7 << 30},
        {"GetMemoryInfo": "no_permission", "GetRunningProcesses": "no_permission"},
    ),
    "instances before Hopper": Case(
        "profile=a100-mig",
        {"gpu_mig_memory_total_bytes 7": 10 << 30, "gpu_mig_sm_active_ratio 7": None},
        {"GpmMigSampleGet": "not_supported"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_driver_says_is_what_the_page_shows(driver: Driver, start: Starting, case: Case) -> None:
    driver.tell("gpus=8", *case.said.split())

    def as_expected(found: Scrape) -> bool:
        values, listed = series_of(found), lacking(found)
        errors = {
            (labels["call"], labels["code"])
            for labels in map(dict, found.all("gpu_exporter_collect_errors_total"))
        }
        return (
            all_ok(found)
            and {key: values.get(key) for key in case.shows} == pytest.approx(dict(case.shows))
            and {call: listed.get(call) for call in case.lacks} == case.lacks
            and case.fails.items() <= errors
        )

    exporter = start(*QUICK, *case.flags.split())
    found = exporter.until(as_expected)
    assert len(lacking(found)) <= 20
    assert all(driver.calls()[name, 3] == 0 for name in case.unasked)


@pytest.mark.parametrize("card", CARDS)
def test_every_quantity_of_a_card_is_served_in_base_units(driver: Driver, start: Starting, card: str) -> None:
    """Also where another GPU is lost and something failed: promtool finds nothing wrong."""
    driver.tell("gpus=8", f"profile={card}", "lost=5:15", "error=GetPowerUsage@2:999", "xid=1:79:1")
    found = start().until(lambda found: found.value("gpu_xid_errors_total", gpu="1", xid="79"))

    assert of(found) == CARDS[card]
    assert found.value("gpu_devices") == found.value("gpu_devices_expected") == 8
    assert all(math.isfinite(value) for value in found.samples.values())
    for tool in (prometheus("2.42"), prometheus("3.13")):
        done = subprocess.run(
            [tool.tool, "check", "metrics"], input=found.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), tool.version


@pytest.mark.parametrize("flags", [(), ("--serial=true",)])
def test_identity_is_in_the_info_metrics_only(start: Starting, flags: tuple[str, ...]) -> None:
    found = start(*QUICK, *flags).until(all_ok)
    (reported,) = found.all("gpu_info", gpu="3")

    assert dict(reported) == {
        "gpu": "3",
        "uuid": uuid(3),
        "name": "NVIDIA H200",
        "pci_bus_id": "00000000:30:00.0",
        "architecture": "hopper",
        "compute_capability": "9.0",
        "vbios_version": "96.00.A5.00.01",
        **({"serial": "1650000000003"} if flags else {}),
    }
    driver = {"driver_version": "580.95.05", "cuda_version": "13.0", "nvml_version": "13.580.95.05"}
    assert found.value("gpu_driver_info", **driver) == 1


def test_a_scrape_asks_the_driver_nothing(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=30")
    exporter.until(all_ok)
    driver.forget_calls()
    for _ in range(20):
        exporter.scrape()

    assert {name for name, _ in driver.calls()} <= {"EventSetWait"}

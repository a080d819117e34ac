"""Values that the driver gives by number: their types, their errors, and how often they are asked for."""

from __future__ import annotations

import struct

import pytest

from exporter.gpu.nvml.library import decode
from tests.gpu.driver import Driver
from tests.gpu.expected import H200, lacking, of
from tests.gpu.exporter import QUICK, Starting, all_ok, reasons, shown

MEMORY_TEMPERATURE = 82


def test_a_value_is_read_by_its_type(driver: Driver, start: Starting) -> None:
    """Of the eight bytes that stand there, the library leaves those that the type does not use full of 1s."""
    exporter = start()
    for kind in range(7):
        driver.tell("gpus=8", f"field={MEMORY_TEMPERATURE}:{kind}:{70 + kind}")
        exporter.until(
            lambda found, kind=kind: (
                found.value("gpu_temperature_celsius", gpu="3", sensor="memory") == 70 + kind
            )
        )


def test_an_unknown_type_is_not_a_value_and_is_listed(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", f"field={MEMORY_TEMPERATURE}:7:77")
    found = start().until(all_ok)

    assert shown(found, "gpu_power_instant_watts") == set(range(8))
    assert found.value("gpu_temperature_celsius", sensor="memory") is None
    assert lacking(found)["FieldValue(memory_temperature)"] == "garbage"


@pytest.mark.parametrize(
    ("kind", "number"),
    [(1, 0xFFFFFFFF), (2, 2**64 - 1), (3, 2**64 - 1), (6, 0xFFFF), (5, -1), (4, -1), (0, "nan"), (0, "inf")],
)
def test_what_stands_for_no_value_is_dropped_and_counted(
    driver: Driver, start: Starting, kind: int, number: int | str
) -> None:
    driver.tell("gpus=8", f"field=94:{kind}:{number}")
    found = start().until(all_ok)

    assert "gpu_pcie_replays_total" not in {metric for metric, _ in of(found)}
    counted = found.value(
        "gpu_exporter_collect_errors_total", call="FieldValue(pcie_replays)", code="garbage"
    )
    assert counted == 8


def test_a_counter_that_wraps_within_seconds_is_none(driver: Driver, start: Starting) -> None:
    """4 GiB pass over an NVLink in 10 ms and over PCIe in 60 ms, and 2^32 nanoseconds are 4 s."""
    numbers = (138, 74, 197, 198)
    driver.tell("gpus=8", *(f"field={number}:1:4294967000" for number in numbers))
    found = start().until(all_ok)

    assert found.value("gpu_nvlink_transmit_bytes_total") is None
    assert found.value("gpu_clock_event_seconds_total", reason="power_cap") is None
    assert shown(found, "gpu_nvlink_receive_bytes_total") == set(range(8))
    assert lacking(found)["FieldValue(throttling power_cap)"] == "wraps"
    assert not [name for name, _ in found.samples if "pcie" in name and name.endswith("bytes_total")]


def test_one_field_that_fails_costs_the_others_nothing_and_comes_back(
    driver: Driver, start: Starting
) -> None:
    driver.tell("gpus=8", f"refuse={MEMORY_TEMPERATURE}:999")
    exporter = start()
    found = exporter.until(all_ok)

    assert of(found).keys() == H200.keys() - {("gpu_temperature_celsius", "memory")}
    name = "FieldValue(memory_temperature memory)"
    assert (found.value("gpu_exporter_collect_errors_total", call=name, code="unknown") or 0) >= 8
    assert name not in lacking(found)
    driver.tell("gpus=8")
    exporter.until(lambda found: 3 in shown(found) and of(found) == H200)


def test_a_field_that_the_driver_overlooks_has_no_value(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", f"untouched={MEMORY_TEMPERATURE}:")
    found = exporter.until(lambda found: not found.all("gpu_temperature_celsius", sensor="memory"))

    assert all_ok(found)


def test_a_part_of_which_something_is_there_is_listed_by_what_is_missing(
    driver: Driver, start: Starting
) -> None:
    driver.tell("gpus=8", "profile=a100-mig")
    listed = lacking(start().until(all_ok))

    assert {call for call in listed if "ecc" in call} == {"FieldValue(ecc uncorrected)"}
    assert {call for call in listed if "row_remap" in call} == {
        "FieldValue(row_remap correctable)",
        "FieldValue(row_remap uncorrectable)",
    }


def test_a_field_of_a_lost_gpu_reports_it(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", f"refuse={MEMORY_TEMPERATURE}:15")
    start().until(lambda found: reasons(found) == dict.fromkeys(range(8), "lost"))


def test_how_long_the_driver_took_for_the_slowest_field_is_reported(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "latency=12500")
    found = start().until(all_ok)

    assert found.value("gpu_exporter_driver_latency_seconds", gpu="3") == 0.0125


@pytest.mark.parametrize("answer", ["power=4294967295", "util=4294967295"])
def test_no_getter_s_word_for_no_value_is_taken_for_one(driver: Driver, start: Starting, answer: str) -> None:
    driver.tell("gpus=8", answer)
    found = start(*QUICK).until(all_ok)

    assert len(of(found)) == len(H200) - (1 if "power" in answer else 2)
    assert {value for (_, label), value in of(found).items() if label == ""}.isdisjoint({4294967.295})
    assert any(dict(labels)["code"] == "garbage" for labels in found.all("gpu_exporter_collect_errors_total"))


def test_a_margin_may_be_used_up(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "margin=-3")

    assert start().until(all_ok).value("gpu_temperature_margin_celsius", gpu="3") == -3


def test_signed_values_keep_their_sign() -> None:
    assert decode(5, struct.pack("i", -8) + b"\xaa" * 4) == -8
    assert decode(4, struct.pack("q", -8)) == -8

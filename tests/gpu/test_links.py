"""NVLink, each link by itself, and the fabric."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.gpu.driver import Driver
from tests.gpu.expected import CARDS, of
from tests.gpu.exporter import QUICK, Starting, all_ok


def test_links_that_are_down_are_counted(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "down=2")
    values = of(start().until(all_ok))

    assert values["gpu_nvlink_links", "active"] == 16
    assert values["gpu_nvlink_links", "inactive"] == 2


class Counted(NamedTuple):
    """How many links a card has, and what is counted on one: bytes sent, and kinds of errors."""

    links: int
    sent: Callable[[int], int]
    errors: set[str]


def kibibytes(link: int) -> int:
    return (13803 + 100000 * link) * 1024


UP_TO_4 = {"crc", "replay", "recovery"}
FIFTH = {kind for metric, kind in CARDS["b200"] if metric == "gpu_nvlink_errors_total"}
COUNTED = {
    "h200": Counted(18, kibibytes, UP_TO_4),
    "a100": Counted(12, kibibytes, UP_TO_4),
    "b200": Counted(18, lambda link: 20203 + 100000 * link, FIFTH),
}


@pytest.mark.parametrize("card", COUNTED)
def test_on_request_each_link_counts_by_itself_and_nothing_is_counted_twice(
    driver: Driver, start: Starting, card: str
) -> None:
    wanted = COUNTED[card]
    driver.tell("gpus=8", f"profile={card}")
    found = start(*QUICK, "--links=true").until(all_ok)
    sent = found.all("gpu_nvlink_transmit_bytes_total", gpu="3")
    reported = [dict(labels) for labels in found.all("gpu_nvlink_errors_total", gpu="3")]

    assert {int(dict(labels)["link"]): value for labels, value in sent.items()} == {
        link: wanted.sent(link) for link in range(wanted.links)
    }
    assert {(int(labels["link"]), labels["type"]) for labels in reported} == {
        (link, kind) for link in range(wanted.links) for kind in wanted.errors
    }


def test_a_card_without_links_has_none(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "profile=rtx4080")
    found = start(*QUICK, "--links=true").until(all_ok)

    assert not [name for name, _ in found.samples if "nvlink" in name]


@pytest.mark.parametrize("count", [4294967295, 4294967294, 65])
def test_a_count_of_links_that_cannot_be_is_not_believed(driver: Driver, start: Starting, count: int) -> None:
    driver.tell("gpus=8", f"field=91:1:{count}")
    found = start(*QUICK, "--links=true").until(all_ok)

    assert not [name for name, _ in found.samples if "nvlink" in name]
    assert found.value("gpu_exporter_collect_errors_total", call="FieldValue(nvlink_count)", code="garbage")


@pytest.mark.parametrize("state", [0, 1, 2])
def test_the_state_of_the_fabric_is_reported(driver: Driver, start: Starting, state: int) -> None:
    driver.tell("gpus=8", f"fabric={state}")

    assert of(start().until(all_ok))["gpu_fabric_state", ""] == state

"""Hours of the demo's GPUs: healthy cards of any kind raise nothing, a sick one what it is sick of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.gpu.backend import PROFILES, Settings
from tests.real import PrometheusServer, query
from tests.rules import hours, rendered, selectors
from tests.rules.hours import Fired, Watched

pytestmark = pytest.mark.e2e

SICK = 1
HOURS, AN_HOUR = 2 * 3600, 3600

RULES = [*rendered.rules("gpu"), *rendered.rules("stack")]


def reads(rule: dict[str, Any]) -> frozenset[str]:
    """The metrics that a rule reads."""
    return frozenset(each.name for each in selectors.selectors(rule["expr"]))


ABOUT_GPUS = [rule for rule in RULES if any(name.startswith("gpu_") for name in reads(rule))]
METRICS = frozenset().union(*(reads(rule) for rule in ABOUT_GPUS))

RAISED_BY = {
    "GPUXid": "gpu_xid_errors_total",
    "GPUHot": "gpu_temperature_margin_celsius",
    "GPUThermalThrottle": "gpu_clock_event_seconds_total",
    "GPUECCUncorrectable": 'gpu_ecc_errors_total{type="uncorrected"}',
    "GPURowRemapPending": "gpu_row_remap_pending",
    "NVLinkErrors": "gpu_nvlink_errors_total",
}
"""What the sick one is sick of, and by what it shows: not each kind of card has each."""


@pytest.fixture(name="end", scope="module")
def _end() -> int:
    return int(time.time()) // hours.SCRAPE * hours.SCRAPE - hours.SCRAPE


@pytest.fixture(name="url", scope="module")
def _url(end: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    server = PrometheusServer("3.13", folder)
    boxes = [
        *(Watched(profile, Settings(profile=profile), HOURS) for profile in PROFILES),
        *(Watched(f"{profile} sick", Settings(profile=profile, sick=SICK), AN_HOUR) for profile in PROFILES),
    ]
    hours.load(server, (line for box in boxes for line in box.samples(METRICS, end)))
    with server:
        yield server.url


@pytest.fixture(name="found", scope="module")
def _found(url: str, end: int) -> set[Fired]:
    return hours.fired(url, ABOUT_GPUS, end - HOURS, end - hours.SCRAPE)


@pytest.mark.parametrize("profile", PROFILES)
def test_healthy_cards_raise_nothing_for_hours(profile: str, found: set[Fired], url: str, end: int) -> None:
    seen = query(url, f'count_over_time(gpu_up{{instance="{profile}"}}[{HOURS}s] @ {end - hours.SCRAPE})')
    assert {int(each["value"][1]) for each in seen} == {HOURS // hours.SCRAPE}
    assert [each for each in found if each.instance == profile] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_a_sick_card_raises_what_it_has_and_no_other_card_does(
    profile: str, found: set[Fired], url: str, end: int
) -> None:
    box = f"{profile} sick"
    raised = {each for each in found if each.instance == box}
    ill = f'gpu_up{{instance="{box}",gpu="{SICK}"}} @ {end - hours.SCRAPE}'
    shown = {
        alert
        for alert, reported in RAISED_BY.items()
        if query(url, f"{reported} and on (instance, gpu) {ill}")
    }

    assert {"GPUXid", "GPUHot"} <= shown
    assert shown <= {each.alert for each in raised}
    assert {each.gpu for each in raised} == {str(SICK)}

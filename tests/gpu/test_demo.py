"""The simulated GPUs: they move like a training box, the same way each time, and one is sick on request."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu.backend import CRITICAL_XIDS, PROFILES, Reading, Settings
from exporter.gpu.demo import Demo
from exporter.gpu.reader import SLOW_INTERVALS
from exporter.gpu.table import FAMILIES
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, reasons
from tests.runs.scrape import Scrape

SICK = 1


class Stage:
    """A demo whose time passes only when a test says so."""

    def __init__(self, profile: str) -> None:
        self.now = 1000.0
        self.demo = Demo(Settings(profile=profile, sick=SICK), lambda: self.now)
        self.cards = [self.demo.card(number) for number in range(self.demo.open()[0])]

    def values(self, gpu: int) -> dict[str, float]:
        """What a GPU shows now, by metric and labels."""
        return {
            " ".join([reading.metric, *reading.labels.values()]): reading.value
            for call in self.cards[gpu].calls
            for reading in self.cards[gpu].read(call)
            if isinstance(reading, Reading)
        }


@settings(deadline=None)
@given(st.sampled_from(list(PROFILES)), st.integers(0, 1), st.floats(0, 1e6))
def test_values_follow_from_the_clock_and_are_possible(profile: str, gpu: int, at: float) -> None:
    one, other = Stage(profile), Stage(profile)
    one.now += at
    other.now += at
    values = one.values(gpu)

    assert values == other.values(gpu)
    for name, value in values.items():
        assert value >= 0 or "margin" in name
        assert value <= 1 or not name.split()[0].endswith("_ratio")
    totals = [name for name in values if re.match("gpu_(mig_)?memory_total_bytes", name)]
    for total in totals:
        parts = (total.replace("total", part) for part in ("used", "free", "reserved"))
        assert sum(values[part] for part in parts) == values[total]


@pytest.mark.parametrize("profile", PROFILES)
def test_counters_never_go_back_and_energy_is_the_integral_of_the_power(profile: str) -> None:
    stage, seen = Stage(profile), []
    for _ in range(193):
        seen.append(stage.values(0))
        stage.now += 1
    for before, after in pairwise(seen):
        for name in before:
            assert before[name] <= after[name] or FAMILIES[name.split()[0]].type != "counter", name
    power = sum(each["gpu_power_watts"] for each in seen[:192]) / 192
    energy = [each["gpu_energy_joules_total"] for each in seen]
    assert abs((energy[192] - energy[0]) / 192 - power) < 1


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_sick_gpu_gets_too_hot_and_reports_a_critical_error_every_three_minutes(
    profile: str,
) -> None:
    stage, at = Stage(profile), []
    while stage.now < 1000 + 500:
        stage.now += 0.5
        for event in stage.demo.events(0):
            at.append(round(stage.now - 1000))
            assert event.uuid == stage.cards[SICK].uuid
            assert event.xid in CRITICAL_XIDS
    assert at == [45, 225, 405]
    for gpu in range(PROFILES[profile]):
        values = stage.values(gpu)
        assert (values["gpu_temperature_margin_celsius"] < 5) == (gpu == SICK)
        assert (values["gpu_clock_event_seconds_total software_thermal"] > 60) == (gpu == SICK)


EXCEPTIONS = {
    "gpu_exporter_unsupported": "simulated cards are asked for nothing that they do not have",
    "gpu_exporter_collect_errors_total": "no call to them fails",
    "gpu_exporter_driver_latency_seconds": "there is no driver whose time could be taken",
    "gpu_utilization_window_max_ratio": "a driver has none when no sample came since the last reading",
}
"""What only one of the two shows, and why."""
OPTIONAL = ("--serial=true", "--links=true", "--pcie=true", "--processes=2")
INTERVAL = 0.15
ALIKE = re.compile("reason|limit|sensor|threshold|domain|engine|type|state|kind|cause|pipe|fan|link|xid")
"""Labels whose values are the same for all cards of a kind."""


@pytest.mark.parametrize(
    ("profile", "flags"),
    [pytest.param("h200", (), id="h200-usual"), *((profile, OPTIONAL) for profile in PROFILES)],
    ids=lambda value: value if isinstance(value, str) else "all",
)
def test_the_demo_shows_all_that_such_a_card_shows(
    driver: Driver, start: Starting, profile: str, flags: tuple[str, ...]
) -> None:
    gpus = range(PROFILES[profile])
    processes = [f"process={gpu}:compute:{pid}:{pid}:40" for gpu in gpus for pid in (70, 71)]
    driver.tell(f"gpus={len(gpus)}", f"profile={profile}", *processes)
    demo = start("--backend=demo", f"--profile={profile}", f"--interval={INTERVAL}", *flags)
    real = start("--backend=nvml", f"--interval={INTERVAL}", *flags)

    assert shown(demo, len(gpus)) == shown(real, len(gpus))


def shown(exporter: Exporter, gpus: int) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Metrics with their labels, once also what is read seldom was read twice: means need that."""

    def read_at(found: Scrape) -> float:
        return found.value("gpu_exporter_last_collect_timestamp_seconds") or 0.0

    first = read_at(exporter.until(lambda found: reasons(found) == dict.fromkeys(range(gpus), "ok")))
    later = first + (SLOW_INTERVALS + 2) * INTERVAL * exporter.slow
    found = exporter.until(lambda found: read_at(found) > later)
    return {
        (name, frozenset((label, text if ALIKE.fullmatch(label) else "") for label, text in labels))
        for name, labels in found.samples
        if name not in EXCEPTIONS
    }

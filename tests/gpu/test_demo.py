"""The simulated GPUs: they move like a training box, the same way each time, and one is sick on request."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu import __main__
from exporter.gpu.backend import CRITICAL_XIDS, PROFILES, Extras, Reading
from exporter.gpu.demo import Demo
from exporter.gpu.reader import SLOW_INTERVALS
from exporter.gpu.table import FAMILIES
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, reasons
from tests.runs.scrape import Scrape

SICK = 1
COUNTERS = {family.name for family in FAMILIES.values() if family.type == "counter"}
TROUBLE = ("software_thermal", "hardware_thermal", "hardware_slowdown", "power_brake")
WORST = {
    "gpu_row_remap_pending",
    "gpu_row_remap_failed",
    "gpu_recovery_action",
    *(f"gpu_clock_event_active {reason}" for reason in TROUBLE),
    *(f"gpu_clock_event_seconds_total {reason}" for reason in TROUBLE),
}
"""What stays 0 on a healthy card, beside all counted errors."""


class Stage:
    """A demo whose time passes only when it sleeps or a test says so."""

    def __init__(self, profile: str = "h200", seed: int = 7, *, sick: int | None = SICK) -> None:
        self.now = 1000.0
        self.demo = Demo(Extras(profile=profile, sick=sick), seed, lambda: self.now, self.sleep)
        self.cards = [self.demo.card(number) for number in range(self.demo.open())]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def values(self, gpu: int) -> dict[str, float]:
        """What a GPU shows now, by metric and labels."""
        return {
            " ".join([reading.metric, *reading.labels.values()]): reading.value
            for call in self.cards[gpu].calls
            for reading in self.cards[gpu].read(call)
            if isinstance(reading, Reading)
        }


def over_time(
    seconds: int, gpu: int = 0, profile: str = "h200", *, sick: int | None = SICK
) -> list[dict[str, float]]:
    stage, found = Stage(profile, sick=sick), []
    for _ in range(seconds):
        found.append(stage.values(gpu))
        stage.now += 1
    return found


@settings(deadline=None)
@given(st.sampled_from(list(PROFILES)), st.integers(0, 1), st.floats(0, 1e6), st.integers(0, 1000))
def test_values_follow_from_seed_and_clock_and_are_possible(
    profile: str, gpu: int, at: float, seed: int
) -> None:
    one, other = Stage(profile, seed), Stage(profile, seed)
    one.now += at
    other.now += at
    values = one.values(gpu)

    assert values == other.values(gpu)
    for name, value in values.items():
        assert value >= 0 or "margin" in name
        if name.split()[0].endswith("_ratio"):
            assert value <= 1
    assert sum_of(values, "gpu_memory_{}_bytes") == values["gpu_memory_total_bytes"]
    for instance in {name.split()[1] for name in values if name.startswith("gpu_mig_info")}:
        parts = "gpu_mig_memory_{}_bytes " + instance
        assert sum_of(values, parts) == values[parts.format("total")]


def bad(values: dict[str, float]) -> set[str]:
    return {name for name, value in values.items() if value and ("error" in name or name in WORST)}


def sum_of(values: dict[str, float], name: str) -> float:
    return sum(values[name.format(part)] for part in ("used", "free", "reserved"))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("sick", [None, SICK])
def test_counters_never_go_back(profile: str, sick: int | None) -> None:
    seen = over_time(400, SICK, profile, sick=sick)
    counters = [name for name in seen[0] if name.split()[0] in COUNTERS]

    assert counters
    for before, after in pairwise(seen):
        assert all(before[name] <= after[name] for name in counters)


def test_energy_is_the_integral_of_the_power() -> None:
    values = over_time(200)
    energy = [each["gpu_energy_joules_total"] for each in values]
    mean = sum(each["gpu_power_watts"] for each in values[:192]) / 192

    assert all(after > before for before, after in pairwise(energy))
    assert abs((energy[192] - energy[0]) / 192 - mean) < 1


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.slow
def test_only_the_sick_gpu_gets_too_hot(profile: str) -> None:
    for gpu in range(PROFILES[profile]):
        later = over_time(300, gpu, profile)[180:]
        margins = [values["gpu_temperature_margin_celsius"] for values in later]
        slow = later[-1]["gpu_clock_event_seconds_total software_thermal"]

        assert (max(margins) < 5) == (gpu == SICK)
        assert (slow > 60) == (gpu == SICK)


def test_the_sick_gpu_shows_what_alerts_are_for() -> None:
    stage = Stage()
    stage.now += 500
    sick, other = stage.values(SICK), stage.values(0)

    assert bad(sick) == {
        "gpu_ecc_errors_total uncorrected",
        "gpu_ecc_volatile_errors_total uncorrected",
        "gpu_row_remap_pending",
        "gpu_recovery_action",
        "gpu_clock_event_active software_thermal",
        "gpu_clock_event_seconds_total software_thermal",
        "gpu_nvlink_errors_total crc_flit",
        "gpu_nvlink_errors_total replay",
        "gpu_nvlink_errors_total recovery",
    }
    assert sick["gpu_clock_hertz sm"] < other["gpu_clock_hertz sm"]
    assert bad(other) == set()


@pytest.mark.parametrize("profile", PROFILES)
def test_the_sick_gpu_reports_a_critical_error_after_45_seconds_and_every_three_minutes(profile: str) -> None:
    stage, at = Stage(profile), []
    while stage.now < 1000 + 500:
        for event in stage.demo.events(0.5):
            at.append(round(stage.now - 1000))
            assert event.uuid == stage.cards[SICK].uuid
            assert event.xid in CRITICAL_XIDS

    assert at == [45, 225, 405]


def test_a_sick_gpu_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.command_line(["--backend=demo", "--profile=rtx4080", "--sick=5"]).options()

    assert "--sick 5: no such GPU. Expected a number from 0 to 1" in capsys.readouterr().err


EXCEPTIONS = {
    "gpu_exporter_unsupported": "simulated cards are asked for nothing that they do not have",
    "gpu_exporter_collect_errors_total": "no call to them fails",
    "gpu_exporter_driver_latency_seconds": "there is no driver whose time could be taken",
    "gpu_utilization_window_max_ratio": "a driver has none when no sample came since the last reading",
}
"""What only one of the two shows, and why."""
OPTIONAL = ("--serial=true", "--links=true", "--pcie=true", "--processes=2")


@pytest.mark.parametrize(
    ("profile", "flags"),
    [pytest.param("h200", (), id="h200-usual"), *((profile, OPTIONAL) for profile in PROFILES)],
    ids=lambda value: value if isinstance(value, str) else "all",
)
def test_the_demo_shows_all_that_such_a_card_shows(
    driver: Driver, start: Callable[..., Exporter], profile: str, flags: tuple[str, ...]
) -> None:
    gpus = range(PROFILES[profile])
    processes = [f"process={gpu}:compute:{pid}:{pid}:40" for gpu in gpus for pid in (70, 71)]
    driver.tell(f"gpus={len(gpus)}", f"profile={profile}", *processes)
    demo = start("--backend=demo", f"--profile={profile}", f"--interval={INTERVAL}", *flags)
    real = start("--backend=nvml", f"--interval={INTERVAL}", *flags)

    assert shown(demo, len(gpus)) == shown(real, len(gpus))


INTERVAL = 0.15
ALIKE = re.compile("reason|limit|sensor|threshold|domain|engine|type|state|kind|cause|pipe|fan|link|xid")
"""Labels whose values are the same for all cards of a kind."""


def shown(exporter: Exporter, gpus: int) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Metrics with their labels, once also what is read seldom was read twice: means need that."""
    first = read_at(exporter.until(lambda found: reasons(found) == dict.fromkeys(range(gpus), "ok")))
    found = exporter.until(
        lambda found: read_at(found) > first + (SLOW_INTERVALS + 2) * INTERVAL * exporter.slow
    )
    return {
        (name, frozenset((label, text if ALIKE.fullmatch(label) else "") for label, text in labels))
        for name, labels in found.samples
        if name not in EXCEPTIONS
    }


def read_at(found: Scrape) -> float:
    return found.value("gpu_exporter_last_collect_timestamp_seconds") or 0.0

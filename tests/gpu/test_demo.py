"""The simulated GPUs: they move like a training box, the same way each time, and one is sick."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu import demo
from exporter.gpu.backend import Extras, Reading, Tier
from exporter.gpu.contract import CRITICAL_XIDS
from tests.gpu.exporter import Exporter, all_ok

SICK = 5


class Stage:
    """A demo whose time passes only when it sleeps or a test says so."""

    def __init__(self, seed: int = 7) -> None:
        self.now = 1000.0
        self.demo = demo.Demo(Extras(sick=SICK), seed, lambda: self.now, self.sleep)
        self.demo.open()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def values(self, gpu: int, tier: Tier = Tier.FAST) -> dict[str, float]:
        """What a GPU shows now, by metric and labels."""
        return {
            " ".join([reading.metric, *reading.labels.values()]): reading.value
            for quantity in self.demo.cards()[gpu].quantities
            if quantity.tier is tier
            for reading in quantity.read()
            if isinstance(reading, Reading)
        }


def over_time(seconds: int, gpu: int = 0) -> list[dict[str, float]]:
    stage, found = Stage(), []
    for _ in range(seconds):
        found.append(stage.values(gpu))
        stage.now += 1
    return found


@settings(deadline=None)
@given(st.integers(0, 7), st.floats(0, 1e6), st.integers(0, 1000))
def test_values_follow_from_seed_and_clock_and_are_possible(gpu: int, at: float, seed: int) -> None:
    one, other = Stage(seed), Stage(seed)
    one.now += at
    other.now += at
    values = one.values(gpu)

    assert values == other.values(gpu)
    for name, value in values.items():
        assert value >= 0 or "margin" in name
        if "ratio" in name:
            assert value <= 1
    parts = sum(values[f"gpu_memory_{part}_bytes"] for part in ("used", "free", "reserved"))
    assert parts == values["gpu_memory_total_bytes"]


def test_busy_and_idle_phases_follow_each_other() -> None:
    used = [values["gpu_utilization_ratio"] for values in over_time(60)]

    assert max(used) > 0.9
    assert min(used) < 0.1
    assert sum(used) / len(used) > 0.6


def test_energy_is_the_integral_of_the_power() -> None:
    values = over_time(200)
    energy = [each["gpu_energy_joules_total"] for each in values]
    mean = sum(each["gpu_power_watts"] for each in values[:192]) / 192

    assert all(after > before for before, after in pairwise(energy))
    assert abs((energy[192] - energy[0]) / 192 - mean) < 1


def test_only_the_sick_gpu_gets_too_hot() -> None:
    margins = [over_time(300, gpu)[-1]["gpu_temperature_margin_celsius"] for gpu in range(8)]
    hottest = {gpu: min(v["gpu_temperature_margin_celsius"] for v in over_time(300, gpu)) for gpu in range(8)}

    assert [gpu for gpu, margin in enumerate(margins) if margin < 5] == [SICK]
    assert all((margin < 5) == (gpu == SICK) for gpu, margin in hottest.items())


def test_the_sick_gpu_reports_a_critical_error_after_45_seconds_and_every_three_minutes() -> None:
    stage, at = Stage(), []
    while stage.now < 1000 + 500:
        for event in stage.demo.events(0.5):
            at.append(round(stage.now - 1000))
            assert event.uuid == stage.demo.cards()[SICK].uuid
            assert event.xid in CRITICAL_XIDS

    assert at == [45, 225, 405]


def test_static_values_are_those_of_an_h200() -> None:
    values = Stage().values(0, Tier.STATIC)

    assert "gpu_info simulated H200 00000000:01:00.0 hopper 9.0 demo" in values
    assert values["gpu_power_limit_watts enforced"] == 700


def test_the_demo_shows_all_that_a_real_card_shows(start: Callable[..., Exporter]) -> None:
    names = [
        {name for name, _ in start(f"--backend={backend}", "--interval=0.5").until(all_ok).samples}
        for backend in ("demo", "nvml")
    ]

    assert names[0] ^ names[1] <= {"gpu_utilization_window_max_ratio", "gpu_exporter_unsupported"}

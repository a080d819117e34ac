"""*Step by phase*: few enough curves to be read, which together are all phases that the run logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.grafana.conftest import Json
from tests.grafana.queries import View, ask, panels_of
from tests.grafana.stored import serving, store

pytestmark = pytest.mark.e2e

START, EVERY, POINTS = 1_795_000_000, 5, 60
MANY = {
    "rollout": 52.0,
    "update_actor": 17.0,
    "update_critic": 9.0,
    "old_log_prob": 7.0,
    "ref_log_prob": 6.0,
    "values": 5.0,
    "weight_sync": 2.0,
    "reward": 1.0,
    "advantage": 1.0,
}
FEW = {"rollout": 52.0, "update_actor": 17.0, "save_checkpoint": 0.0}
EQUAL = {**dict.fromkeys(MANY, 1.0), "save_checkpoint": 1.0}
LATE = 50
"""The point at which a checkpoint is saved, once."""


def samples() -> Iterator[str]:
    for run, phases in (("many", {**MANY, "save_checkpoint": 0.0}), ("few", FEW), ("equal", EQUAL)):
        for twin in ("a:1", "b:1"):
            for phase, seconds in phases.items():
                for point in range(POINTS):
                    saves = phase == "save_checkpoint" and point == LATE and run != "equal"
                    took = 40.0 if saves else seconds
                    series = f'rl_{phase}_seconds{{run="{run}",job="runs",instance="{twin}"}}'
                    yield f"{series} {took} {START + EVERY * point}\n"


@dataclass
class Shown:
    """The panel of a run, by a Prometheus."""

    panel: Json
    url: str
    whole: ClassVar[tuple[str, ...]] = ("whole step", "step")

    def curves(self, run: str, points: int = POINTS) -> dict[str, list[float]]:
        """The values of each curve but the step's own, over the first points."""
        view = View(START, START + EVERY * (points - 1), {"run": run}, interval=EVERY)
        found = {}
        for target in self.panel["targets"]:
            for series in ask(self.url, target, view)["result"]:
                found[target["legendFormat"]] = [float(value) for _, value in series["values"]]
        return {name: values for name, values in found.items() if name not in self.whole}


@pytest.fixture(name="shown", scope="module", params=["2.42", "3.13"])
def _shown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, default: dict[str, Json]
) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("phases")
    store(folder, samples())
    (panel,) = (each for each in panels_of(default["stepwatch-training"]) if each["title"] == "Step by phase")
    with serving(request.param, folder) as server:
        yield Shown(panel, server.url)


def test_of_many_phases_six_are_shown_and_the_sum_of_the_others(shown: Shown) -> None:
    curves = shown.curves("many", LATE)

    assert list(curves) == [
        *("rollout", "old log probs", "reference", "values", "critic update", "actor update", "others")
    ]
    assert curves["others"] == [4.0] * len(curves["others"])
    assert {sum(parts) for parts in zip(*curves.values(), strict=True)} == {sum(MANY.values())}


def test_a_phase_that_takes_long_once_has_a_curve_of_its_own(shown: Shown) -> None:
    curves = shown.curves("many")

    assert "checkpoint" in curves
    assert "values" not in curves
    assert {sum(parts) for parts in zip(*curves.values(), strict=True)} == {100.0, 140.0}


def test_of_equal_ones_each_is_among_the_longest(shown: Shown) -> None:
    curves = shown.curves("equal")

    assert len(curves) == len(EQUAL)
    assert {sum(parts) for parts in zip(*curves.values(), strict=True)} == {float(len(EQUAL))}


def test_of_few_phases_each_is_shown_and_there_are_no_others(shown: Shown) -> None:
    assert list(shown.curves("few")) == ["rollout", "actor update", "checkpoint"]

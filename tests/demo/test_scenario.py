from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import batch
from demo.scenario import RESPONSE_LIMIT, SCENARIOS, Scenario
from demo.trainer import TOTAL

steps = st.integers(0, 3 * TOTAL)
scenarios = st.sampled_from(SCENARIOS)


@given(scenarios, steps)
def test_every_level_is_possible(scenario: Scenario, step: int) -> None:
    level = scenario.level(step)

    assert 0 < level.score < 1
    assert min(level._replace(waits=1)) > 0 <= level.waits < 0.5  # SlowSteps is silent
    assert level.length < RESPONSE_LIMIT / 2


@given(scenarios, steps, st.integers())
def test_a_batch_shows_what_a_batch_can(scenario: Scenario, step: int, seed: int) -> None:
    drawn = batch.draw(scenario.level(step), Random(seed))

    assert 0 <= drawn.score <= 1
    assert drawn.score * batch.SAMPLES == int(drawn.score * batch.SAMPLES)
    assert 0 <= drawn.cut <= 1
    assert drawn.length <= drawn.longest <= RESPONSE_LIMIT
    assert min(drawn.kl, drawn.entropy, drawn.gradient, drawn.prompt) > 0


@given(scenarios, steps, st.integers())
def test_the_same_dice_give_the_same_batch(scenario: Scenario, step: int, seed: int) -> None:
    level = scenario.level(step)

    assert batch.draw(level, Random(seed)) == batch.draw(level, Random(seed))


def test_batches_are_spread_around_the_level() -> None:
    level = SCENARIOS[0].level(1000)
    dice = Random(1)
    scores = [batch.draw(level, dice).score for _ in range(2000)]

    assert sum(scores) / len(scores) == pytest.approx(level.score, rel=0.01)


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_a_share_never_leaves_its_bounds(share: float) -> None:
    level = SCENARIOS[0].level(0)._replace(score=share)
    dice = Random(1)

    assert all(0 <= batch.draw(level, dice).score <= 1 for _ in range(200))


@pytest.mark.parametrize(
    ("quantity", "rises"), [("score", True), ("kl", True), ("entropy", False), ("length", True)]
)
def test_a_healthy_run_goes_one_way(quantity: str, rises: bool) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "healthy")
    curve = [getattr(scenario.level(step), quantity) for step in range(0, TOTAL, 100)]

    assert curve == sorted(curve, reverse=not rises)

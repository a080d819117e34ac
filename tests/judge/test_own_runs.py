"""The rules on runs of our own: a trainer's real log, and curves with one thing in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.judge import real_logs

pytestmark = pytest.mark.e2e


Records = Iterable[Mapping[str, float]]


def fired(log: Path, settings: Mapping[str, Any] | None = None) -> dict[str, int]:
    """The alerts of a run, with the records at which they fired first."""
    with real_logs.loaded([log], Config.model_validate(settings or {})) as backtest:
        (run,) = backtest.results(Progress()).runs
        assert isinstance(run, Judged)
        return {alert.alert: alert.first_record for alert in reversed(run.alerts)}


def written(folder: Path, records: Records) -> Path:
    """A log with these records, one a step."""
    log = folder / "ppo.jsonl"
    lines = (json.dumps({"step": step, **record}) for step, record in enumerate(records, 1))
    log.write_text("".join(f"{line}\n" for line in lines))
    return log


def rewards(values: Iterable[float]) -> Records:
    return [{"reward": value} for value in values]


RISEN = [0.3 + 0.7 * min(1, step / 40) for step in range(150)]


def test_a_reward_that_rose_to_its_ceiling_and_stays_is_left_alone(tmp_path: Path) -> None:
    assert fired(written(tmp_path, rewards(RISEN))) == {}


@pytest.mark.parametrize(("level", "alerts"), [(1.0, set()), (0.5, {"NoLearningSignal"})])
def test_a_constant_reward_is_a_success_at_the_ceiling_that_is_configured_and_nowhere_else(
    tmp_path: Path, level: float, alerts: set[str]
) -> None:
    ceiling = {"alerts": {"NoLearningSignal": {"warning": {"ceiling": 1.0}}}}
    assert fired(written(tmp_path, rewards([level] * 60)), ceiling).keys() == alerts
    risen = rewards([level * value for value in RISEN])
    assert fired(written(tmp_path, risen), ceiling).keys() == alerts


def _learning(count: int, entropy: float) -> list[dict[str, float]]:
    """Reward rises to 0.7 with the noise of some 200 answers, entropy falls tenfold from 20 times as much."""
    dice = Random(7)
    return [
        {"reward": 0.7 - 0.6 * 0.97**step + dice.gauss(0, 0.03), "entropy": entropy * (1 + 19 * 0.9**step)}
        for step in range(count)
    ]


@pytest.mark.parametrize("entropy", [0.03, 0.2])
def test_little_entropy_with_a_rising_reward_is_left_alone_however_high_it_began(
    tmp_path: Path, entropy: float
) -> None:
    assert fired(written(tmp_path, _learning(200, entropy))) == {}


def test_next_to_no_entropy_is_reported_also_with_a_rising_reward(tmp_path: Path) -> None:
    assert fired(written(tmp_path, _learning(200, 0.005))).keys() == {"EntropyCollapse"}


def test_a_solved_task_may_have_no_entropy(tmp_path: Path) -> None:
    solved = [{"reward": value, "entropy": 0.5 * 0.93**step} for step, value in enumerate(RISEN)]
    assert fired(written(tmp_path, solved)) == {}


def test_longer_answers_are_reported_where_reward_is_lost_and_nothing_says_what_is_cut(
    tmp_path: Path,
) -> None:
    records = [{**each, "response_length": 300 + 5 * step} for step, each in enumerate(_learning(200, 0.3))]
    assert fired(written(tmp_path, records)) == {}
    losing = [
        {**each, "reward": each["reward"] * 0.98 ** max(0, at - 120)} for at, each in enumerate(records)
    ]
    assert "LengthRunaway" in fired(written(tmp_path, losing))


def test_a_spike_does_not_hide_a_gradient_that_grows_after_it(tmp_path: Path) -> None:
    dice = Random(7)
    norms = [dice.lognormvariate(0, 0.2) * (16 if step >= 120 else 1) for step in range(160)]
    norms[100] *= 1e4
    at = fired(
        written(
            tmp_path,
            ({**each, "grad_norm": norm} for each, norm in zip(_learning(160, 0.3), norms, strict=True)),
        )
    )["GradNormHigh"]
    assert 120 < at <= 131, "ten steps, each far above the lowest level"

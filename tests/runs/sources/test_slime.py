"""slime's log lines: several parts of the trainer, one step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Event, Record, number
from exporter.runs.sources.dict_consoles import OpenRlhf, Slime
from tests.runs.lines import bare

ROLLOUT = "train_metric_utils.py:135 - rollout 11: {'rollout/rewards': 0.0, 'rollout/raw_reward': 0.53}"


def read(*lines: str | bytes) -> list[Event]:
    source = Slime()
    return [event for line in bare(*lines) for event in source.parse(line)]


def steps(*lines: str) -> list[tuple[str, int]]:
    return [(event.stream, event.step) for event in read(*lines) if isinstance(event, Record)]


@pytest.mark.parametrize(
    "line",
    [
        f"[2026-08-21 10:11:12] {ROLLOUT}",
        f"(MegatronTrainRayActor pid=10122) [2026-07-20 17:53:24] {ROLLOUT}",
        f"\x1b[36m(MegatronTrainRayActor pid=10122, ip=10.0.0.7)\x1b[0m [2026-07-20 17:53:24] {ROLLOUT}",
        f"  3%|▎  | 1/30 [00:41<24:12,  3.43s/it]\r[2026-08-21 10:11:12] {ROLLOUT}",
        "rollout 11: {'rollout/rewards': 0.0, 'rollout/raw_reward': 0.53}",
        "(RolloutManager pid=5) rollout 11: {'rollout/rewards': 0.0, 'rollout/raw_reward': 0.53}",
    ],
)
def test_a_rollout_is_read_whatever_stands_around_it(line: str) -> None:
    """The time in the line has no zone: it is not taken for ours."""
    values = {"rollout/rewards": "0.0", "rollout/raw_reward": "0.53"}

    assert read(line) == [Record(11, values, time=None, stream="rollout")]
    assert Slime.recognises(line.encode())


def test_two_perf_lines_of_a_step_are_two_streams() -> None:
    """The rollouts' process may be a step ahead of the training's: that is no resume."""
    manager = "perf {}: {{'rollout/response_len/mean': 312.5, 'perf/rollout_time': 55.2}}"
    training = "perf {}: {{'perf/actor_train_time': 30.1, 'perf/step_time': 99.5}}"
    found = steps(manager.format(11), manager.format(12), training.format(11), training.format(12))

    assert found == [("perf of rollout", 11), ("perf of rollout", 12), ("perf", 11), ("perf", 12)]


def test_several_optimizer_steps_of_a_rollout_are_one_step() -> None:
    rollout, train = "rollout {}: {{'rollout/raw_reward': 0.5}}", "step {}: {{'train/loss': 0.5}}"
    found = steps(rollout.format(0), train.format(0), train.format(1), rollout.format(1), train.format(2))

    assert [step for _, step in found] == [0, 0, 0, 1, 1]


def test_a_training_behind_its_rollouts_keeps_its_own_step() -> None:
    rollout, train = "rollout {}: {{'rollout/raw_reward': 0.5}}", "step {}: {{'train/loss': 0.5}}"

    assert [step for _, step in steps(rollout.format(5), train.format(4))] == [5, 4]


def test_a_dict_that_its_author_wrapped_is_one_record() -> None:
    lines = [
        "(FSDPTrainRayActor pid=3) step 1: {'train/loss': 3.0547380e-07,",
        "(FSDPTrainRayActor pid=3)          'train/grad_norm': 15.142637252807617,",
        "(FSDPTrainRayActor pid=3)          'train/lr-pg_0': 1e-06}",
    ]
    (found,) = read(*lines)

    assert isinstance(found, Record)
    assert {key: number(value) for key, value in found.values.items()} == {
        "train/loss": 3.054738e-07,
        "train/grad_norm": 15.142637252807617,
        "train/lr-pg_0": 1e-06,
    }
    assert Slime.recognises(lines[0].encode())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 3: {'loss': 0.5}",
        "one step 3: {'train/loss': 0.5}",
        "rollout 3: finished",
        f"step {'9' * 20}: {{'train/loss': 0.5}}",
        "INFO 08-13 10:11:12 ppo_trainer.py:547] ✨ Global step 12: {'rollout/reward_mean': 0.53}",
    ],
)
def test_other_lines_give_no_record(line: str) -> None:
    assert read(line) == []
    assert not Slime.recognises(line.encode())


def test_the_formats_of_other_trainers_are_distinguished() -> None:
    assert not OpenRlhf.recognises(ROLLOUT.encode())


@given(st.integers(min_value=0))
def test_a_line_cut_anywhere_invents_nothing(cut: int) -> None:
    assert read(ROLLOUT[: cut % len(ROLLOUT)]) == []

"""What launchers, collectors of logs and loggers put before the lines of any console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.conftest import Watching
from tests.runs.lines import append, console, measured, verl_json

REWARDS = (0.25, 0.5, 0.75)
BAR = "\r  3%|3         | {}/100 [00:41<24:12,  3.43s/it]\n"
LOGGERS = (
    "INFO:root:",
    "INFO:trainer:",
    "2025-11-27 08:00:00,123 INFO trainer: ",
    "2025-11-27 08:00:00,123 - my.trainer - INFO - ",
    "[2025-11-27 08:00:00,123][trainer][INFO] - ",
    "[2025-11-27 08:00:00,123] [WARNING] ",
    "2025-11-27T08:00:00Z ",
    "I1127 08:00:00.123456 140123 trainer.py:64] ",
    "[rank0]:",
    "[rank0]: ",
    "[default0]:",
    "[1,0]<stdout>:",
    "(Trainer pid=4, ip=10.0.0.7) ",
    "\x1b[36m(Trainer pid=4)\x1b[0m INFO:trainer:",
)
LABELS = (
    "0: ",
    "  0: ",
    "node-3: ",
    "trainer-1  | ",
    "0: INFO:root:",
    "0: [rank0]: 2025-11-27 08:00:00 INFO a.b: ",
)


def trl(step: int, reward: float) -> str:
    return f"{{'loss': 0.1, 'reward': {reward}, 'epoch': {step / 100}}}\n"


def verl(step: int, reward: float) -> str:
    return console(step, measured(step, reward=reward))


def openrlhf(step: int, reward: float) -> str:
    return f"Global step {step}: {{'policy_loss': 0.1, 'reward': {reward}}}\n"


def slime(step: int, reward: float) -> str:
    return f"rollout {step}: {{'rollout/raw_reward': {reward},\n 'rollout/truncated': 0.5}}\n"


def json(step: int, reward: float) -> str:
    return verl_json(step, measured(step, reward=reward))


@pytest.mark.parametrize("trainer", [trl, verl, openrlhf, slime, json])
@pytest.mark.parametrize("prefix", [*LOGGERS, *LABELS])
def test_a_growing_log_is_read_behind_them(
    folder: Path, watched: Watching, prefix: str, trainer: object
) -> None:
    assert callable(trainer)
    page, log = watched(), folder / "a.log"
    every = prefix if prefix in LABELS else ""
    append(log, f"{every}Loading the model\n")
    for step, reward in enumerate(REWARDS, 1):
        lines = trainer(step, reward).splitlines(keepends=True)
        append(log, *(prefix + line for line in lines), every + BAR.format(step).lstrip("\r" * bool(every)))
        found = page.discover()

        assert found.value("rl_reward", run="a") == reward
        assert found.value("rl_step", run="a") == step
    assert found.value("rl_records_total", run="a") == len(REWARDS)


def test_words_before_a_dict_are_no_label_if_other_lines_have_none(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, *(f"Loading shard {number}\n" for number in range(9)), f"10: {trl(10, 0.5)}", trl(1, 0.25))
    found = page.discover()

    assert found.value("rl_reward", run="a") == 0.25
    assert found.value("rl_records_total", run="a") == 1


def test_an_error_behind_them_ends_a_trainer_before_its_first_step(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "a.log"
    append(log, "0: Total training steps: 100\n")
    page.discover()
    append(log, "0: [rank0]: Traceback (most recent call last):\n0: [rank0]: ValueError: no\n")
    page.look(1.0)

    assert page.look(70.0).state("a") == "failed"

"""A run whose log lacks what alerts judge is reported, with the line that maps its likeliest keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import Watching
from tests.runs.lines import append, verl_json

SFT = {"train/loss": 1.5, "train/lr(1e-3)": 0.01, "val/loss": 1.6}
OWN = {"train/correct_rate": 0.5, "env/loss": 1.5}
KNOWN = {"critic/score/mean": 0.5, "actor/entropy": 1.2}
RENAMED = {"env/return_mean": 0.5, "actor/entropy": 1.2}
RARELY = [KNOWN if step % 5 else {"actor/entropy": 1.2} for step in range(60)]
PREFERENCES = {"rewards/chosen": 1.0, "rewards/rejected": -1.0, "rewards/accuracies": 0.9, "env/score": 0.5}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([OWN] * 9, {}),
        ([OWN] * 10, {("reward", "unknown"): 'reward: ["train/correct_rate"]'}),
        ([OWN] * 9 + [OWN | KNOWN], {}),
        ([SFT] * 30, {}),
        (
            [{"env/val_score": 0.5}] * 10,
            {("validation_score", "unknown"): 'validation_score: ["env/val_score"]'},
        ),
        ([KNOWN] * 20 + [RENAMED] * 19, {}),
        ([KNOWN] * 20 + [RENAMED] * 20, {("reward", "lost"): 'reward: ["env/return_mean"]'}),
        ([KNOWN] * 20 + [{"actor/entropy": 1.2}] * 20, {("reward", "lost"): ""}),
        ([KNOWN] * 20 + [RENAMED] * 20 + [KNOWN], {}),
        ([KNOWN] * 19 + [RENAMED] * 30, {}),
        (RARELY, {}),
    ],
)
def test_what_a_log_lacks_is_on_the_page_with_the_line_for_it(
    steps: list[dict[str, float]], expected: dict[Any, str], folder: Path, watched: Watching
) -> None:
    for step, values in enumerate(steps):
        changed = {key: value + step / 1000 for key, value in values.items()}
        append(folder / "a.jsonl", verl_json(step, changed))

    assert lacks(watched()) == expected


def test_preference_optimisation_has_no_reward_by_nature(folder: Path, watched: Watching) -> None:
    history = [PREFERENCES | {"step": step, "epoch": step / 100, "loss": 0.5} for step in range(30)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 29}))

    assert lacks(watched()) == {}


def lacks(page: Watching) -> dict[tuple[str, str], str]:
    found = map(dict, page.look().all("rl_run_signal_missing_info"))
    return {(labels["signal"], labels["reason"]): labels["setting"] for labels in found}

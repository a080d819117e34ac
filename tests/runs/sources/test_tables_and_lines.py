"""Consoles of home-made loops and small trainers, from a growing log to the page: minimind, Tinker, Tunix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.conftest import Watching
from tests.runs.lines import append


def minimind_grpo(step: int, reward: float) -> list[str]:
    values = f"Reward: {reward:.4f}, KL_ref: 0.1000, Adv Std: 0.9000, Adv Mean: -0.0100, Actor Loss: 0.0123"
    return [f"Epoch:[1/2]({step}/9751), {values}, Avg Response Len: 312.50, Learning Rate: 0.00000030"]


def minimind_ppo(step: int, reward: float) -> list[str]:
    values = f"Reward: {reward:.4f}, KL_ref: 0.1000, Approx KL: 0.0020, ClipFrac: 0.0100, Critic Loss: nan"
    rates = "Actor LR: 0.00000030, Critic LR: 0.00000050"
    return [f"Epoch:[2/2]({step}/100), {values}, Avg Response Len: 312.50, {rates}"]


def brackets(step: int, reward: float) -> list[str]:
    return [f"Epoch [0/3], Step [{step}/100] loss: 0.0123 kl=-1e-3 | mean_reward: {reward} | time: 3.2min"]


def tinker(step: int, reward: float, width: int = 26) -> list[str]:
    rows = {
        "env/all/ac_tokens_per_turn": "312.500000",
        "env/all/reward/total": f"{reward:.6f}",
        "env/all/by_group/frac_…": "0.500000",
        "optim/entropy": "0.400000",
        "optim/kl_sample_train_v2": "nan",
        "progress/batch": str(step),
    }
    folded = [
        (key[at : at + width], value if not at else "")
        for key, value in rows.items()
        for at in range(0, len(key), width)
    ]
    return [
        "",
        f"{'Step ' + str(step):^{width + 16}}",
        f"┏━{'━' * width}━┳━{'━' * 10}━┓",
        f"┃ {'Metric':{width}} ┃ {'Value':10} ┃",
        f"┡━{'━' * width}━╇━{'━' * 10}━┩",
        *(f"│ {key:{width}} │ {value:10} │" for key, value in folded),
        f"└─{'─' * width}─┴─{'─' * 10}─┘",
    ]


def tinker_folded(step: int, reward: float) -> list[str]:
    return tinker(step, reward, width=12)


def tunix(step: int, reward: float) -> list[str]:
    scalars = {
        "rewards/train/sum": reward,
        "actor/train/kl": 0.1,
        "actor/train/loss": 0.0123,
        "actor/train/grad_norm": "nan",
        "generation/train/completions/mean_length": 312.5,
    }
    lines = [f"[{step}] {key}={value}" for key, value in scalars.items()]
    return [*lines, f"Train step {step} training loss: 0.012300  - training perplexity: 1.012376"]


def clu(step: int, reward: float) -> list[str]:
    return [
        f"[{step}] collection=train entropy=0.4, kl=0.1, loss=0.0123, reward={reward}, response_length=312.5"
    ]


def tunix_absl(step: int, reward: float) -> list[str]:
    return [f"I1127 08:00:00.123456 140123 logging_writer.py:64] {line}" for line in tunix(step, reward)]


EXPECTED = {
    minimind_grpo: {"kl": 0.1, "policy_loss": 0.0123, "response_length": 312.5, "learning_rate": 3e-7},
    minimind_ppo: {"kl": 0.1, "policy_kl": 0.002, "policy_clip_ratio": 0.01, "learning_rate": 3e-7},
    brackets: {"kl": -0.001, "policy_loss": 0.0123},
    tinker: {"response_length": 312.5, "entropy": 0.4},
    tinker_folded: {"response_length": 312.5, "entropy": 0.4},
    tunix: {"kl": 0.1, "loss": 0.0123, "response_length": 312.5},
    tunix_absl: {"kl": 0.1, "loss": 0.0123, "response_length": 312.5},
    clu: {"kl": 0.1, "loss": 0.0123, "response_length": 312.5, "entropy": 0.4},
}
BEFORE = {minimind_ppo: 100}
"""Steps of the epochs before."""
TOTALS = {minimind_grpo: 19502, minimind_ppo: 200, brackets: 300}
NAN = {minimind_ppo: "value_loss", tunix: "grad_norm", tunix_absl: "grad_norm"}


@pytest.mark.parametrize("trainer", EXPECTED, ids=lambda trainer: trainer.__name__)
def test_a_growing_console_is_read(folder: Path, watched: Watching, trainer: object) -> None:
    assert callable(trainer)
    page, log = watched(), folder / "a.log"
    append(log, "Loading the model\n", "Step 3 of the setup\n", "[12] nothing=much\n")
    for step in (2, 4, 6):
        text = "\n".join(["Saving", *trainer(step, step / 8)])
        half = len(text) // 2
        append(log, text[:half])
        page.look(1.0)
        append(log, f"{text[half:]}\n")
        found = page.discover()

        assert found.value("rl_step", run="a") == BEFORE.get(trainer, 0) + step
        assert found.value("rl_reward", run="a") == step / 8
    for signal, value in EXPECTED[trainer].items():
        assert found.value(f"rl_{signal}", run="a") == pytest.approx(value), signal
    if trainer in NAN:
        assert found.value("rl_nonfinite_streak_steps", run="a", signal=NAN[trainer]) == 3
    assert found.value("rl_total_steps", run="a") == TOTALS.get(trainer)
    assert found.value("rl_records_total", run="a") == 3
    assert found.value("rl_restarts_total", run="a") == 0


@pytest.mark.parametrize(
    "text",
    [
        "Step 3\nloading\n│ env/all/reward/total │ 0.5 │\n",
        "Results\n┏━━━┳━━━┓\n┃ Metric ┃ Value ┃\n┡━━━╇━━━┩\n│ reward │ 0.5 │\n└───┴───┘\n",
        "Epoch:[1/2](3/10), took: 0.5, shard: 3\n",
        "see Epoch:[1/2](3/10), Reward: 0.5\n",
        "[12] shape=3, name=kl\n",
        "array[12] reward=0.5 is out of range\n",
    ],
)
def test_other_lines_that_look_alike_are_no_records(folder: Path, watched: Watching, text: str) -> None:
    page = watched()
    append(folder / "a.log", text)

    assert not page.discover().runs()

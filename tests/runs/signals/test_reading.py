"""Reading a run's records: spellings of keys, the framework they tell, parts, and what no signal uses."""

from __future__ import annotations

import math
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs import signals
from exporter.runs.signals import NAMES, Reading, tables
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.reading import table
from exporter.runs.signals.tables import frameworks

ANYTHING = st.one_of(
    st.floats(), st.integers(-(2**63), 2**63), st.none(), st.booleans(), st.text(max_size=20), st.just([1])
)
KNOWN_KEYS = sorted(
    {name for framework in frameworks() for _, keys in table(framework) for key in keys for name in key.names}
)
KEYS = st.one_of(st.sampled_from(KNOWN_KEYS), st.text(max_size=30))

GRPO = {
    "loss": 0.1,
    "grad_norm": 0.5,
    "learning_rate": 1e-6,
    "reward": 0.25,
    "reward_std": 0.125,
    "completions/mean_length": 300.0,
    "kl": 0.01,
}


def under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {prefix + key: value for key, value in values.items()}


# spellings


@pytest.mark.parametrize(
    "key",
    [
        "critic/score/mean",
        "critic_score_mean",
        "Critic/Score/Mean",
        "critic.score.mean",
        "rl_insight_monitor_critic_score_mean",
        "rl_insight_monitor_critic/score/mean",
    ],
)
def test_a_key_is_known_in_every_spelling(key: str) -> None:
    assert Reading("verl").signals({key: 0.5}) == {"reward": 0.5}


@pytest.mark.parametrize("at", ["@", "_at_", "_"])
def test_the_at_of_validation_keys_has_several_spellings(at: str) -> None:
    assert Reading("verl").signals({f"val-core/gsm8k/acc/mean{at}8": 0.5}) == {"validation_score": 0.5}


@pytest.mark.parametrize("framework", ["trl", "openrlhf"])
def test_the_section_that_tensorboard_adds_says_nothing(framework: str) -> None:
    reading = Reading(framework)

    assert reading.signals({"train/reward": 0.5}) == reading.signals({"reward": 0.5}) == {"reward": 0.5}


def test_a_key_as_the_trainer_wrote_it_wins_over_one_with_a_section() -> None:
    assert Reading("trl").signals({"train/reward": 0.5, "reward": 0.25})["reward"] == 0.25


# which framework


@pytest.mark.parametrize(
    ("framework", "values"),
    [
        ("verl", {"critic/score/mean": 0.5}),
        ("verl", {"actor_entropy": 0.5, "critic_score_mean": 0.5}),
        ("trl", GRPO),
        ("trl", under("train/", GRPO)),
        ("trl", {"objective/scores": 0.5, "policy/approxkl_avg": 0.1, "lr": 1e-6}),
        ("trl", {"rewards/chosen": 0.5, "rewards/rejected": 0.25, "loss": 0.1}),
        ("openrlhf", under("train/", {"policy_loss": 0.1, "actor_lr": 1e-6, "kl": 0.1, "reward": 0.5})),
        ("nemo_rl", {"train/reward": 0.5, "train/loss": 0.1, "timing/train/generation": 5.0}),
        ("slime", {"rollout/raw_reward": 0.5, "train/pg_loss": 0.1, "train/grad_norm": 0.1}),
        ("areal", {"ppo_actor/task_reward/avg": 0.5, "timeperf/rollout": 5.0}),
        ("generic", {"mean_reward": 0.5, "avg_gen_tokens": 300.0}),
        ("unknown", {"a": 1.0, "b": 2.0}),
    ],
)
def test_keys_tell_the_framework(framework: str, values: dict[str, Any]) -> None:
    reading = Reading("")
    reading.signals(values)

    assert reading.framework == framework


def test_scalars_that_come_one_at_a_time_tell_the_framework_too() -> None:
    reading = Reading("")
    for key, value in under("train/", GRPO).items():
        reading.signals({key: value})

    assert reading.framework == "trl"
    assert reading.signals({"train/completions/mean_length": 300.0}) == {"response_length": 300.0}


def test_a_run_stays_what_it_is_when_keys_of_another_framework_come() -> None:
    reading = Reading("")
    reading.signals(under("train/", GRPO))
    reading.signals({"critic/score/mean": 0.5, "actor/entropy": 0.5})

    assert reading.framework == "trl"


def test_another_framework_wins_once_more_of_its_signals_were_seen() -> None:
    reading = Reading("")
    assert reading.signals({"reward_mean": 0.5}) == {"reward": 0.5}
    assert reading.framework == "generic"
    reading.signals({"actor/entropy": 0.5, "actor/pg_loss": 0.1, "actor/lr": 1e-6})

    assert reading.framework == "verl"


# a user's own keys


@pytest.mark.parametrize("framework", ["", "verl", "scoped"])
def test_additions_come_before_the_framework_s_own_keys(framework: str) -> None:
    reading = Reading(framework, keys_of({"reward": ["my/score", "my/other"]}))

    values = {"critic/score/mean": 0.5, "actor/entropy": 0.4, "my/score": 0.25}
    assert reading.signals(values)["reward"] == 0.25
    assert reading.signals({"my/other": 0.75}) == {"reward": 0.75}


def test_one_value_is_made_of_several_keys_as_the_users_table_says() -> None:
    reading = Reading(
        "",
        keys_of(
            {
                "reward": [{"difference": ["my/score", "my/penalty"]}],
                "rollout_seconds": [{"key": "my/ms", "scale": "ms"}],
                "truncated_ratio": [{"one_minus": "my/whole", "when": ["my/score"]}],
                "validation_score": [{"mean_of": "my_eval_.+"}],
            }
        ),
    )

    values = {
        "my/score": 0.9,
        "my/penalty": 0.2,
        "my/ms": 1500,
        "my/whole": 0.75,
        "my/eval/a": 1,
        "my/eval/b": 0,
    }
    assert reading.signals(values) == {
        "reward": pytest.approx(0.7),
        "rollout_seconds": 1.5,
        "truncated_ratio": 0.25,
        "validation_score": 0.5,
    }


def test_a_trainer_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tables.HERE / "trainers", tmp_path / "trainers")
    (tmp_path / "trainers/mine.yaml").write_text(
        "rank: 99\nprefixes: [mine/]\nsignals:\n  reward: [gain]\n  kl: [{key: drift, scale: 0.5}]\n"
        "  entropy: [spread]\nparts:\n  - {signal: reward_component, key: 'gain_(.+)'}\n"
    )
    made = tables.frameworks(tmp_path / "trainers")
    monkeypatch.setattr(signals.reading, "frameworks", lambda: made)
    for cached in (signals.reading.guessed, signals.reading.table, signals.reading.completed):
        monkeypatch.setattr(signals.reading, cached.__name__, cached.__wrapped__)

    reading = Reading("")
    values = {"mine/gain": 0.5, "drift": 2.0, "spread": 1.5, "gain_format": 0.1}
    assert reading.signals(values) == {"reward": 0.5, "kl": 1.0, "entropy": 1.5}
    assert reading.framework == "mine"
    assert reading.parts(values) == {("reward_component", "format"): 0.1}


# values


@given(st.dictionaries(KEYS, ANYTHING, max_size=12), st.sampled_from(["", *frameworks()]))
def test_whatever_is_logged_is_read_to_numbers(values: dict[str, Any], framework: str) -> None:
    reading = Reading(framework)

    for _ in range(2):
        assert set(reading.signals(values)) <= set(NAMES)
        for found in (reading.signals(values), reading.parts(values), reading.unmapped(values)):
            assert all(type(value) is float for value in found.values())


@given(st.dictionaries(KEYS, st.floats(-1e9, 1e9), min_size=1, max_size=12))
def test_a_record_reads_the_same_with_one_more_value_that_is_not_a_number(values: dict[str, float]) -> None:
    reading = Reading("verl")
    before = reading.signals(values)

    assert reading.signals({**values, "actor/lr": "n/a"}).items() >= {
        (signal, value) for signal, value in before.items() if signal != "learning_rate"
    }


# parts


def test_reward_functions_are_parts_of_the_reward() -> None:
    values = {
        "reward": 1.5,
        "rewards/format/mean": 0.5,
        "rewards/format/std": 0.25,
        "train/rewards/Answer/mean": 1.0,
        "rewards/older_spelling": 0.75,
        "rewards/chosen": 9.0,
        "eval_rewards/format/mean": 8.0,
    }

    assert Reading("trl").parts(values) == {
        ("reward_component", "format"): 0.5,
        ("reward_component_std", "format"): 0.25,
        ("reward_component", "Answer"): 1.0,
        ("reward_component", "older_spelling"): 0.75,
    }


def test_tinker_s_rewards_are_parts_beside_the_total() -> None:
    values = {"reward/total": 1.5, "reward/correct": 0.5, "reward/format": None}
    found = Reading("").parts(values)

    assert found[("reward_component", "correct")] == 0.5
    assert math.isnan(found[("reward_component", "format")])
    assert len(found) == 2


def test_there_are_few_parts_and_the_first_ones_stay() -> None:
    reading = Reading("trl")
    for step in range(100):
        reading.parts({f"rewards/made_up_{step}/mean": 1.0})
    values = {"rewards/made_up_0/mean": 0.5, "rewards/made_up_99/mean": 0.25}

    assert reading.parts(values) == {("reward_component", "made_up_0"): 0.5}
    assert reading.unmapped(values) == {"rewards/made_up_99/mean": 0.25}


def test_many_reward_functions_leave_room_for_validation_sets() -> None:
    reading = Reading("verl")
    for made_up in range(100):
        reading.parts({f"gdpo/{made_up}/mean": 1.0, f"gdpo/{made_up}/std": 1.0})

    sets = reading.parts({f"val-core/set{index}/acc/mean@1": 0.5 for index in range(100)})

    assert sets == {("validation_component", f"set{index}"): 0.5 for index in range(16)}


# what no signal uses


def test_keys_that_no_signal_uses_are_kept_by_their_own_names() -> None:
    values = {
        "critic/score/mean": 0.5,
        "critic/rewards/mean": 0.25,
        "env/success": 1,
        "note": "text",
        "done": True,
        "lost": None,
    }
    found = Reading("verl").unmapped(values)

    assert math.isnan(found.pop("lost"))
    assert found == {"critic/rewards/mean": 0.25, "env/success": 1.0}


def test_what_was_averaged_is_kept_one_by_one() -> None:
    values = {"eval/a/response_len/mean": 512.0, "eval/b/response_len/mean": 256.0, "eval/b-pass@8": 0.125}

    assert Reading("slime").unmapped(values) == values


# bounds


@pytest.mark.slow
def test_ever_new_keys_do_not_fill_memory() -> None:
    reading = Reading("")

    def log(steps: range) -> int:
        for step in steps:
            reading.signals({f"key/{step}/{place}": 1.0 for place in range(20)} | {"reward_mean": 0.5})
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before, after = log(range(200)), log(range(200, 600))
    tracemalloc.stop()

    assert after - before < 2_000_000


def test_a_key_as_long_as_a_text_is_not_a_key() -> None:
    assert Reading("verl").signals({"critic/score/mean" + "/" * 1000: 0.5}) == {}

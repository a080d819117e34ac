"""Keys that look like a reward, KL, length or entropy are named where the run has no such signal."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats.json_logs import FlatJsonl
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.reading import may_be_measured
from exporter.runs.signals.unmapped import MOST_CANDIDATES, Candidate, candidates
from stepwatch.config import Config
from tests.runs.conftest import Watching
from tests.runs.lines import append


@pytest.mark.parametrize(
    ("key", "signal"),
    [
        ("env/judge_reward", "reward"),
        ("rollout/score_avg", "reward"),
        ("episode_return", "reward"),
        ("custom/kl_to_sft", "kl"),
        ("kl3", None),
        ("kl/old_policy", "policy_kl"),
        ("teacher/kl", "kl_teacher"),
        ("trainer_vs_vllm_kl", "kl_engine"),
        ("seq_kl", "kl_sequence"),
        ("policy/token_entropy", "entropy"),
        ("gen/answer_length", "response_length"),
        ("outputs/len_mean", "response_length"),
        ("heldout/reward", "validation_score"),
        ("heldout/length", "validation_response_length"),
        ("reward/std", None),
        ("reward_max", None),
        ("kl_coef", None),
        ("entropy_coeff", None),
        ("prompt_length", None),
        ("max_seq_len", None),
        ("reward_time", None),
        ("frac_reward_positive", None),
        ("loss", None),
        ("lr", None),
        ("klaxon", None),
        ("rewarding", None),
    ],
)
def test_a_key_looks_like_the_mean_of_one_signal_or_of_none(key: str, signal: str | None) -> None:
    assert [found.signal for found in candidates([key], ())] == ([signal] if signal else [])


def test_signals_that_the_run_has_are_not_looked_for() -> None:
    assert candidates(["env/judge_reward", "my_kl"], {"reward"}) == (Candidate("kl", ("my_kl",)),)


def test_the_likeliest_keys_come_first_and_they_are_few() -> None:
    keys = [f"env_{number}/task/reward" for number in range(100)] + ["env/reward_mean", "env/all/reward/mean"]
    (found,) = candidates(keys, ())

    assert found.keys[:2] == ("env/reward_mean", "env/all/reward/mean")
    assert len(found.keys) == MOST_CANDIDATES


@given(st.lists(st.text(min_size=1, max_size=30).map(lambda text: f"reward/{text}"), min_size=1, max_size=3))
def test_the_line_to_add_is_yaml_that_the_configuration_takes_whatever_the_key(keys: list[str]) -> None:
    for candidate in candidates(keys, ()):
        reported = yaml.safe_load(f"signals:\n  {candidate.setting}\n")

        assert reported == {"signals": {candidate.signal: list(candidate.keys)}}


def test_the_line_to_add_is_read_as_it_is_meant() -> None:
    (candidate,) = candidates(['env "a"/judge: reward #1'], ())
    reported = Config.model_validate(yaml.safe_load(f"signals:\n  {candidate.setting}\n"))

    assert reported.signals == {"reward": ('env "a"/judge: reward #1',)}


def test_a_log_whose_only_known_word_is_a_reward_is_a_run_that_lacks_a_name() -> None:
    """Else nothing would tell how to have it watched."""
    assert FlatJsonl().recognises(b'{"step": 3, "judge_reward_avg": 0.5}')
    assert not FlatJsonl().recognises(b'{"step": 3, "judge_points_avg": 0.5}')
    assert not FlatJsonl().recognises(b'{"judge_reward_avg": 0.5}')
    assert not may_be_measured("the reward is high")


def test_a_run_with_unknown_keys_is_on_the_page_and_its_reward_once_it_is_named(
    folder: Path, watched: Watching
) -> None:
    append(
        folder / "a.jsonl", *(f'{{"step": {step}, "judge_reward_avg": {step / 8}}}\n' for step in range(8))
    )

    assert watched().look().value("rl_reward", run="a") is None
    named = watched(keys=keys_of({"reward": ["judge_reward_avg"]})).look()
    assert named.value("rl_reward", run="a") == 0.875

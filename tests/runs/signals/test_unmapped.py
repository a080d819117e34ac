"""Keys that no signal uses: what they may carry, few of them shown, and what was left out counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.formats.json_logs import FlatJsonl
from exporter.runs.signals import Reading, measurements
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.unmapped import MOST_CANDIDATES, Candidate, RawKeys, RawRule, candidates
from stepwatch.config import Config
from tests.runs.conftest import Watching
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape

# what a run lacks, and the keys that look like it

MEANS = """
env/judge_reward reward
rollout/score_avg reward
episode_return reward
custom/kl_to_sft kl
kl/old_policy policy_kl
teacher/kl kl_teacher
trainer_vs_vllm_kl kl_engine
seq_kl kl_sequence
policy/token_entropy entropy
gen/answer_length response_length
outputs/len_mean response_length
heldout/reward validation_score
heldout/length validation_response_length
"""
NO_MEANS = """
kl3 reward/std reward_max kl_coef entropy_coeff prompt_length max_seq_len reward_time frac_reward_positive
loss lr klaxon rewarding
"""


@pytest.mark.parametrize(("key", "signal"), [row.split() for row in MEANS.strip().splitlines()])
def test_a_key_looks_like_the_mean_of_one_signal(key: str, signal: str) -> None:
    assert candidates([key], ()) == (Candidate(signal, (key,)),)
    assert candidates([key], {signal}) == (), "the run has it"


def test_a_key_that_is_no_mean_looks_like_none() -> None:
    assert candidates(NO_MEANS.split(), ()) == ()


def test_the_likeliest_keys_come_first_and_they_are_few() -> None:
    keys = [f"env_{number}/task/reward" for number in range(100)] + ["env/reward_mean", "env/all/reward/mean"]
    (found,) = candidates(keys, ())

    assert found.keys[:2] == ("env/reward_mean", "env/all/reward/mean")
    assert len(found.keys) == MOST_CANDIDATES


@given(st.lists(st.text(min_size=1, max_size=30).map(lambda text: f"reward/{text}"), min_size=1, max_size=3))
def test_the_line_to_add_is_what_the_configuration_takes_whatever_the_key(keys: list[str]) -> None:
    for candidate in candidates([*keys, 'env "a"/judge: reward #1'], ()):
        reported = Config.model_validate(yaml.safe_load(f"signals:\n  {candidate.setting}\n"))

        assert reported.signals == {candidate.signal: candidate.keys}


def test_a_log_whose_only_known_word_is_a_reward_is_a_run_that_lacks_a_name() -> None:
    """Else nothing would tell how to have it watched."""
    assert FlatJsonl().recognises(b'{"step": 3, "judge_reward_avg": 0.5}')
    assert not FlatJsonl().recognises(b'{"step": 3, "judge_points_avg": 0.5}')
    assert not FlatJsonl().recognises(b'{"judge_reward_avg": 0.5}')
    assert not measurements(("the reward is high",))


def test_a_run_with_unknown_keys_is_on_the_page_and_its_reward_once_it_is_named(
    folder: Path, watched: Watching
) -> None:
    append(
        folder / "a.jsonl", *(f'{{"step": {step}, "judge_reward_avg": {step / 8}}}\n' for step in range(8))
    )

    assert watched().look().value("rl_reward", run="a") is None
    named = watched(signals=keys_of({"reward": ["judge_reward_avg"]})).look()
    assert named.value("rl_reward", run="a") == 0.875


# the keys that are shown


def raw_keys(rule: RawRule, *records: dict[str, object], reading: Reading | None = None) -> RawKeys:
    reading = reading or Reading("verl")
    for record in records:
        reading.note(record)
    return RawKeys(rule, reading)


def test_numbers_without_a_signal_are_shown_under_their_own_keys(folder: Path, watched: Watching) -> None:
    append(folder / "a.jsonl", verl_json(1, measured(1) | {"env/depth": 3.5, "env/name": "maze"}))
    found = watched().look()

    assert found.value("rl_raw", run="a", key="env/depth") == 3.5
    assert found.value("rl_raw", run="a", key="env/name") is None
    assert found.value("rl_raw", run="a", key="critic/score/mean") is None
    assert found.value("rl_raw_keys_refused_total", run="a") == 0


@pytest.mark.parametrize(
    ("rule", "records", "shown"),
    [
        # the last value counts, and a key that is logged now and then stays
        (
            RawRule(),
            [{"env/a": 1, "val/b": 7}, *({"env/a": step} for step in range(5))],
            {"env/a": 4, "val/b": 7},
        ),
        # what is not allowed is not refused, nor is a key that is longer than a label should be
        (RawRule(("env/*", "x?")), [{"env/a": 1, "other/a": 2, "x1": 3, "x12": 4}], {"env/a": 1, "x1": 3}),
        (RawRule(), [{"k" * 10_000: 1.0, "own/k": 2.0}], {"own/k": 2.0}),
    ],
)
def test_what_is_allowed_is_shown_with_its_last_value(
    rule: RawRule, records: list[dict[str, object]], shown: dict[str, float]
) -> None:
    raw = raw_keys(rule, *records)

    assert (raw.values(), raw.refused) == (shown, set())


@given(
    keys=st.lists(st.text(st.characters(categories=["L"]), min_size=1), unique=True), limit=st.integers(0, 9)
)
@example(keys=[*"abcdefghijklmnopqrst"], limit=9)
def test_the_limit_holds_and_all_beyond_it_are_counted(keys: list[str], limit: int) -> None:
    raw = raw_keys(RawRule(limit=limit), *({f"own/{key}": 1.0} for key in keys))
    values = raw.values()

    assert len(values) <= limit
    assert len(values) + len(raw.refused) == min(len(keys), 16), "of the last records of 16 kinds"


def test_a_shown_key_stays_when_others_come() -> None:
    reading = Reading("verl")
    raw = raw_keys(RawRule(limit=2), {"own/z": 1, "own/y": 2}, reading=reading)
    first = raw.values()
    reading.note({"own/a": 3, "own/b": 4})

    assert (raw.values(), len(raw.refused)) == (first, 2)


def test_the_keys_that_came_last_make_room_for_good() -> None:
    raw = raw_keys(RawRule(), {"own/a": 1, "own/b": 2, "own/c": 3})

    assert (raw.values(3), raw.refused) == ({"own/a": 1, "own/b": 2, "own/c": 3}, set())
    assert (raw.values(1), len(raw.refused)) == ({"own/a": 1}, 2)
    assert (raw.values(3), len(raw.refused)) == ({"own/a": 1}, 2)


def test_anyone_who_asks_for_more_raw_keys_than_usual_gets_them(folder: Path) -> None:
    append(folder / "a.jsonl", verl_json(1, {f"env/{number}": number for number in range(500)}))
    watch = Collector(Settings(path=(str(folder),), raw_limit=400))
    while watch.look():
        pass

    assert len(Scrape(watch.metrics()).all("rl_raw", run="a")) == 400

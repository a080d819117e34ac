"""Which key carries which signal, and the keys that mean something else than they say: rows.txt, and more."""

from __future__ import annotations

import math
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs import signals
from exporter.runs.formats.line_consoles import VerlConsole
from exporter.runs.signals import Reading, tables
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.record import Record, ResponseLimit
from exporter.runs.signals.tables import frameworks
from exporter.runs.signals.truncation import Truncation

GIB = 1024**3
LITERALS = {"None": None, "True": True}
PAIR = re.compile(r"(\S+)=(\S+)")
ROWS = re.sub(r"\n    | *#.*", " ", Path(__file__).with_name("rows.txt").read_text()).split("\n")
ANYTHING = st.one_of(
    st.floats(), st.integers(-(2**63), 2**63), st.none(), st.booleans(), st.text(max_size=20), st.just([1])
)
KNOWN_KEYS = sorted(
    {
        name
        for each in frameworks().values()
        for keys in each.keys.values()
        for key in keys
        for name in key.names
    }
)
KEYS = st.one_of(st.sampled_from(KNOWN_KEYS), st.text(max_size=30))
CORE = "val-core/math/dapo"
LEFT_OUT = "training/filter_groups/evicted_samples"
LEFT_OUT_FROM = {"groups_filtered": (LEFT_OUT,), "reward": ("critic/score/mean",)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.strip()])
def test_a_record_means_what_its_trainer_measures_in_our_units(row: str) -> None:
    trainer, _, records = row.partition(": ")
    reading = Reading("" if trainer.startswith("?") else trainer)
    for record in records.split(" ; "):
        logged, arrow, meant = record.partition("->")
        values = {key: LITERALS.get(value, value) for key, value in PAIR.findall(logged)}
        found = reading.signals(values)
        if trainer.startswith("?") or "{" in row:
            found |= {f"{of}{{{part}}}": value for (of, part), value in reading.parts(values).items()}
        expected = {
            name: float(value.removesuffix("GiB")) * (GIB if value.endswith("GiB") else 1)
            for name, value in PAIR.findall(meant)
        }
        assert not arrow or found == pytest.approx(expected, nan_ok=True)

    assert reading.framework == trainer.removeprefix("?")


@pytest.mark.parametrize(
    ("records", "sources"),
    [
        (
            [{f"{CORE}/acc/mean@8": 0.5, f"{CORE}/entropy/mean@8": 9.0}],
            {"validation_score": (f"{CORE}/acc/mean@8",)},
        ),
        (
            [{"val/test_score/a": 0.5, "test_score/b": 9.0}],
            {"validation_score": ("val/test_score/a", "test_score/b")},
        ),
        ([{"actor/kl_loss": 0.0, "critic/kl": 0.25}], {"kl": ("critic/kl",)}),
        ([{"critic/kl": 0.5}, {"actor/entropy": 0.5}], {"kl": ("critic/kl",), "entropy": ("actor/entropy",)}),
        # a count that is left out at 0 was read from its key last
        (
            [{"training/n": 1, LEFT_OUT: 3.0, "critic/score/mean": 0.5}, {"critic/score/mean": 0.5}],
            LEFT_OUT_FROM,
        ),
    ],
)
def test_a_signal_s_sources_are_the_keys_whose_value_it_is(
    records: list[dict[str, float]], sources: dict[str, tuple[str, ...]]
) -> None:
    reading = Reading("verl")
    for values in records:
        reading.note(values)

    assert reading.sources() == sources


def test_who_asks_for_sources_does_not_change_what_a_count_is_next() -> None:
    reading, counts = Reading("verl"), []
    for total in (100.0, 104.0):
        values = {"fully_async/count/dropped_stale_samples": total}
        reading.note(values)
        counts.append(reading.signals(values))
        assert reading.sources() == {"stale_samples_dropped": (*values,)}

    assert counts == [{}, {"stale_samples_dropped": 4.0}]


@given(
    st.from_regex(r"[a-z]{1,8}(/[a-z_]{1,8}){0,2}", fullmatch=True),
    st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
)
def test_no_other_variable_of_any_validation_set_is_averaged(data_set: str, variable: str) -> None:
    found = Reading("verl").signals({f"val-core/{data_set}/{variable}/mean@4": 7.0})

    assert ("validation_score" in found) == (variable in ("acc", "accuracy", "reward", "score"))


# a user's own keys


OWN = {"reward": ["my/score", "my/other"]}
FORMULAS = {
    "reward": [{"difference": ["my/score", "my/penalty"]}],
    "rollout_seconds": [{"key": "my/ms", "scale": "ms"}],
    "truncated_ratio": [{"one_minus": "my/whole", "when": ["my/score"]}],
    "validation_score": [{"mean_of": "my_eval_.+"}],
}
TRUE = {"true_reward": ["rewards/accuracy/mean"]}
OF_TRL = {"reward": 0.9, "rewards/format/mean": 0.8, "rewards/accuracy/mean": 0.1}


@pytest.mark.parametrize(
    ("framework", "own", "values", "expected"),
    [
        *(
            (each, OWN, {"critic/score/mean": 0.5, "my/score": 0.25}, {"reward": 0.25})
            for each in ("", "verl")
        ),
        *((each, OWN, {"my/other": 0.75}, {"reward": 0.75}) for each in ("", "verl", "scoped")),
        (
            "",
            FORMULAS,
            {
                "my/score": 0.9,
                "my/penalty": 0.2,
                "my/ms": 1500,
                "my/whole": 0.75,
                "my/eval/a": 1,
                "my/eval/b": 0,
            },
            {"reward": 0.7, "rollout_seconds": 1.5, "truncated_ratio": 0.25, "validation_score": 0.5},
        ),
        ("trl", {}, OF_TRL, {"reward": 0.9}),
        ("trl", TRUE, OF_TRL, {"reward": 0.9, "true_reward": 0.1}),
    ],
)
def test_the_users_keys_come_before_those_of_any_framework(
    framework: str, own: dict[str, Any], values: dict[str, float], expected: dict[str, float]
) -> None:
    assert Reading(framework, keys_of(own)).signals(values) == pytest.approx(expected)


@pytest.fixture
def fresh_tables() -> Iterator[None]:
    yield
    tables.frameworks.cache_clear()


def test_a_trainer_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_tables: None) -> None:
    shutil.copytree(tables.HERE / "trainers", tmp_path / "trainers")
    (tmp_path / "trainers/mine.yaml").write_text(
        "rank: 99\nprefixes: [mine/]\nsignals:\n  reward: [gain]\n  kl: [{key: drift, scale: 0.5}]\n"
        "  entropy: [spread]\nparts:\n  - {signal: reward_component, key: 'gain_(.+)'}\n"
    )
    monkeypatch.setattr(tables, "HERE", tmp_path)
    tables.frameworks.cache_clear()

    reading = Reading("")
    values = {"mine/gain": 0.5, "drift": 2.0, "spread": 1.5, "gain_format": 0.1}
    assert reading.signals(values) == {"reward": 0.5, "kl": 1.0, "entropy": 1.5}
    assert reading.framework == "mine"
    assert reading.parts(values) == {("reward_component", "format"): 0.1}


def test_every_signal_is_logged_by_some_framework_or_under_its_own_name() -> None:
    own = {signal for name, each in frameworks().items() if name != "generic" for signal in each.keys}

    assert set(signals.NAMES) - own == set()
    for name in signals.NAMES:
        assert Reading("scoped").signals({name: 0.5}).get(name) == 0.5


@pytest.mark.parametrize("name", frameworks())
def test_no_key_carries_two_signals_but_the_loss_that_is_the_total_too(name: str) -> None:
    carried: dict[tuple[object, ...], set[str]] = {}
    for signal, keys in frameworks()[name].keys.items():
        for key in keys:
            if key.how in ("key", "increase"):
                carried.setdefault((*key.names, key.when, key.unless), set()).add(signal)

    assert {frozenset(found) for found in carried.values() if len(found) > 1} <= {
        frozenset({"policy_loss", "loss"})
    }


# values, and keys that no signal uses


AVERAGED = {"eval/a/response_len/mean": 512.0, "eval/b/response_len/mean": 256.0, "eval/b-pass@8": 0.125}


@given(st.dictionaries(KEYS, ANYTHING, max_size=12), st.sampled_from(["", *frameworks()]))
def test_whatever_is_logged_is_read_to_numbers(values: dict[str, Any], framework: str) -> None:
    reading = Reading(framework)

    reading.note(values)
    for _ in range(2):
        assert set(reading.signals(values)) <= set(signals.NAMES)
        for found in (reading.signals(values), reading.parts(values), reading.unmapped()):
            assert all(type(value) is float for value in found.values())


@given(st.dictionaries(KEYS, st.floats(-1e9, 1e9), min_size=1, max_size=12))
def test_a_record_reads_the_same_with_one_more_value_that_is_not_a_number(values: dict[str, float]) -> None:
    reading = Reading("verl")
    before = reading.signals(values)

    assert reading.signals({**values, "actor/lr": "n/a"}).items() >= {
        (signal, value) for signal, value in before.items() if signal != "learning_rate"
    }


@pytest.mark.parametrize(
    ("framework", "values", "unmapped"),
    [
        ("verl", {"critic/score/mean": 0.5, "critic/rewards/mean": 0.25}, {"critic/rewards/mean": 0.25}),
        ("verl", {"env/success": 1, "note": "text", "done": True}, {"env/success": 1.0}),
        ("verl", {"lost": None}, {"lost": math.nan}),
        ("slime", AVERAGED, AVERAGED),
    ],
)
def test_keys_that_no_signal_uses_are_kept_by_their_own_names(
    framework: str, values: dict[str, Any], unmapped: dict[str, float]
) -> None:
    reading = Reading(framework)
    reading.note(values)

    assert reading.unmapped() == pytest.approx(unmapped, nan_ok=True)


# bounds


def test_there_are_few_parts_the_first_ones_stay_and_rewards_leave_room_for_validation_sets() -> None:
    reading = Reading("verl")
    for made_up in range(100):
        reading.parts({f"gdpo/{made_up}/mean": 1.0, f"gdpo/{made_up}/std": 1.0})
    values = {"gdpo/0/mean": 0.5, "gdpo/99/mean": 0.25}
    reading.note(values)

    assert reading.parts(values) == {("reward_component", "0"): 0.5}
    assert reading.unmapped() == {"gdpo/99/mean": 0.25}
    sets = reading.parts({f"val-core/set{index}/acc/mean@1": 0.5 for index in range(100)})
    assert sets == {("validation_component", f"set{index}"): 0.5 for index in range(16)}


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


# the truncated share of verl and ROLL


RATIO, LONGEST = "response_length/clip_ratio", "response_length/max"
V1 = ("training/num_turns/mean", "training/off_policy/trajectory_staleness/mean", "training_num_turns_mean")


COUNTED = {"training/n_truncated_sample": 32.0, "training/n_sample": 128.0}


def truncated(records: list[dict[str, float]], limit: int | None, framework: str) -> list[float | None]:
    """The truncated share of each record of a run."""
    reading, truncation, shares = Reading(framework), Truncation(), []
    for values in records:
        found = reading.signals(values)
        truncation.correct(found, values, limit)
        shares.append(found.get("truncated_ratio"))
    return shares


def lengths(*longest: float, share: float = 0.125, **more: float) -> list[dict[str, float]]:
    """Records of batches whose longest response has that many tokens."""
    return [{RATIO: share, LONGEST: each, **more} for each in longest]


@pytest.mark.parametrize(
    ("records", "limit", "shares"),
    [
        # v1's is the truncated share only at the limit, and v0's always is
        *((lengths(512, **{key: 2.0}), 512, [0.125]) for key in V1),
        *((lengths(512, **{key: 2.0}), 1024, [0.0]) for key in V1),
        *((lengths(512, **{key: 2.0}), None, [None]) for key in V1),
        (lengths(512), None, [0.125]),
        (lengths(512), 1024, [0.125]),
        ([{RATIO: 0.25, V1[0]: 2.0}], 512, [0.25]),
        # what another key counts is the truncated share as it is
        ([{**COUNTED, **lengths(512, **{V1[0]: 2.0})[0]}], 1024, [0.25]),
        # event files and CSV hold no limit: no response is longer than the one that several batches reach
        (lengths(300, 512, 512, 512, 400, 512, **{V1[0]: 2}), None, [None, None, None, 0.125, 0.0, 0.125]),
        # a longer response than all before ends what was thought of the limit
        (lengths(40, 40, 40, 90, 40, **{V1[0]: 2.0}), None, [None, None, 0.125, None, 0.0]),
        # a CSV without the keys by which v1 is known: its share is never 0, whatever the longest length
        (lengths(300, 310, 290, 320, 320, 320), None, [0.125, None, 0.0, None, None, 0.125]),
        # a share that is 0 below one length is the truncated one from the start
        (
            lengths(300, share=0.0) + lengths(512, 512) + lengths(300, share=0.0),
            None,
            [0.0, 0.125, 0.125, 0.0],
        ),
    ],
)
def test_the_share_of_verl_is_what_reached_the_limit(
    records: list[dict[str, float]], limit: int | None, shares: list[float | None]
) -> None:
    assert truncated(records, limit, "verl") == shares


def test_roll_compares_with_the_longest_of_the_batch_too() -> None:
    batches = [
        {"token/total_response_length/clip": 0.125, "token/response_length/max": each}
        for each in (512.0, 512.0, 512.0, 400.0)
    ]

    assert truncated(batches, None, "roll") == [None, None, 0.125, 0.0]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=30),
    st.integers(1, 40),
    st.booleans(),
)
def test_v1_reports_the_share_that_reached_the_limit_and_never_another(
    batches: list[list[int]], limit: int, reported: bool
) -> None:
    cut = [[min(length, limit) for length in batch] for batch in batches]
    records = [
        {RATIO: batch.count(max(batch)) / len(batch), LONGEST: float(max(batch)), V1[0]: 1.0} for batch in cut
    ]
    found = truncated(records, limit if reported else None, "verl")

    for batch, share in zip(cut, found, strict=True):
        if reported:
            assert share == (batch.count(limit) / len(batch) if max(batch) == limit else 0.0)
        elif share:
            assert share == batch.count(max(batch)) / len(batch)


def test_the_response_limit_is_read_from_the_printed_configuration() -> None:
    source = VerlConsole()
    (limit,) = source.parse(b"  'max_response_length': 1024,")
    (record,) = source.parse(
        b"step:1 - response_length/clip_ratio:0.125 - response_length/max:700 - training/num_turns/mean:2.0"
    )
    assert isinstance(limit, ResponseLimit)
    assert isinstance(record, Record)

    assert truncated([{**record.values}], limit.tokens, "verl") == [0.0]

"""What no small log can show: any numbers, lines that a terminal cut, and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats.json_logs import MOST_PARTITIONS
from exporter.runs.signals.record import Event, Record, number
from tests.runs.conftest import Watching
from tests.runs.formats.__main__ import FORMATS, parse
from tests.runs.lines import append, bare, console, verl_json

keys = st.from_regex(r"[a-z_]+(/[a-z0-9@_.]+){0,3}", fullmatch=True)
floats = st.floats(allow_nan=False, allow_infinity=False)


def records(name: str, *lines: str | bytes) -> list[Record]:
    source = FORMATS[name][1]()
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    events: list[Event | str] = [*parse(source, encoded), *source.flush()]
    return [event for event in events if isinstance(event, Record)]


@given(st.integers(0, 10**6), st.dictionaries(keys, st.floats(), min_size=1, max_size=20))
def test_what_verl_writes_is_what_is_read(step: int, written: dict[str, float]) -> None:
    printed = console(step, {key: repr(value) for key, value in written.items()}).rstrip("\n")
    (found,) = records("verl_console", printed)
    (logged,) = records("verl_jsonl", verl_json(step, written))

    assert (found.step, logged.step) == (step, step)
    assert {key: repr(number(raw)) for key, raw in found.values.items()} == {
        key: repr(value) for key, value in written.items()
    }
    finite = {key: value for key, value in written.items() if abs(value) < float("inf")}
    assert finite == {key: value for key, value in logged.values.items() if value is not None}


def test_the_last_field_of_a_line_that_a_terminal_cut_is_dropped() -> None:
    start = "step:10 - critic/score/mean:0.5 - "
    key = "v" * (4096 - len(start) - 4)
    cut, both = f"{start}{key}:0.5", {"critic/score/mean", key}
    behind_ray = f"(TaskRunner pid=7) {cut}"[:4096]
    for line in (cut, cut + "\r", *bare(behind_ray, behind_ray + "\r")):
        assert set(records("verl_console", line)[0].values) == {"critic/score/mean"}
    for line in (cut + "1", cut[:-1]):
        assert set(records("verl_console", line)[0].values) == both

    long = {f"val-core/{index}/mean@16": "0.5" for index in range(400)}
    assert records("verl_console", console(10, long).rstrip("\n")) == [Record(10, long)]


def nameless(step: int) -> str:
    return json.dumps({"epoch": 0, "step": step, "mean": 0.5, "min": 0.0, "max": 1.0})


@given(
    st.integers(0, 500), st.integers(1, 10), st.integers(2, 10), st.from_regex(r"[0-9]{1,5}", fullmatch=True)
)
def test_a_step_with_digits_too_many_is_the_step_that_should_come(
    first: int, distance: int, place: int, digits: str
) -> None:
    steps = [first + distance * index for index in range(12)]
    logged = [*steps[:place], int(f"{steps[place]}{digits}") if steps[place] else 0, *steps[place + 1 :]]

    assert [record.step for record in records("flat_jsonl", *map(nameless, logged))] == steps


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=20, unique=True).map(sorted))
def test_steps_that_rise_are_passed_on_as_they_are(steps: list[int]) -> None:
    found = records("flat_jsonl", *map(nameless, [*steps, 10**6]))

    assert [record.step for record in found][: len(steps)] == steps


ROWS = st.dictionaries(st.integers(0, 10**6), st.tuples(floats, st.none() | floats), min_size=1, max_size=20)


@given(ROWS, st.sampled_from([None, 2]))
def test_a_table_of_metrics_is_the_records_of_its_steps(
    rows: dict[int, tuple[float, float | None]], indent: int | None
) -> None:
    rewards = {step: reward for step, (reward, _) in rows.items()}
    losses = {step: loss for step, (_, loss) in rows.items() if loss is not None}
    text = json.dumps({"train/reward": rewards, "train/loss": losses}, indent=indent)

    assert records("json_metrics", text) == [
        Record(
            step, {"train/reward": rewards[step], **({"train/loss": losses[step]} if step in losses else {})}
        )
        for step in sorted(rows)
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["step", "reward", "epoch", "train_runtime", "x"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(st.lists(st.lists(JSON, max_size=5), max_size=2))
def test_random_histories_never_raise(versions: list[list[Any]]) -> None:
    texts = [json.dumps({"log_history": entries}) for entries in versions]

    assert all(record.step >= 0 for record in records("trainer_state", *texts))


def twinkle(name: str, partition: int, **metrics: float) -> str:
    return json.dumps(
        {"ts": 1785385895.5, "event": name, "partition_id": f"p{partition}", "metrics": metrics}
    )


@given(st.lists(st.tuples(st.integers(1, 16), st.floats(0, 1e4)), min_size=1, max_size=8))
def test_twinkle_s_mean_over_groups_is_the_mean_over_their_samples(groups: list[tuple[int, float]]) -> None:
    lines = [twinkle("rollout_done", 0, sample_count=n, completion_length_mean=mean) for n, mean in groups]
    *_, found = records("twinkle_events", *lines, twinkle("train_step_done", 0), twinkle("partition_done", 0))
    samples = [mean for count, mean in groups for _ in range(count)]

    assert found.values["completion_length_mean"] == pytest.approx(sum(samples) / len(samples))


def test_twinkle_s_partitions_in_the_making_are_bounded() -> None:
    lines = [
        twinkle("rollout_done", each, completion_length_mean=100.0) for each in range(MOST_PARTITIONS + 1)
    ]
    for each in range(2):
        lines += [twinkle("train_step_done", each, reward=0.5), twinkle("partition_done", each, x=1.0)]

    assert ["completion_length_mean" in each.values for each in records("twinkle_events", *lines)] == [
        *(False, False),
        *(False, True),
    ]


PRIME = " | ".join(
    (
        "SUCCESS Step {} | 3.25s | Loss 0.0012 | Entropy {} | Mismatch KL 0.0003 | {}LR 1.00e-06",
        "Throughput 8123 tokens/s\n",
    )
)
DROPPED = "10:11:13 WARNING Dropping 7 non-finite value(s) from metrics.jsonl: {}\n"


@pytest.mark.parametrize("printed", ["Grad. Norm nan | ", "Grad. Norm 0.5312 | ", ""])
@pytest.mark.parametrize("json_lines", [False, True], ids=["alone", "beside its JSON lines"])
def test_what_prime_rl_drops_as_not_finite_counts_until_it_is_finite_again(
    folder: Path, watched: Watching, printed: str, *, json_lines: bool
) -> None:
    page = watched(hold=0.0)
    place = folder / "prime"
    place.mkdir()
    for step in range(13):
        broken = 9 <= step <= 11
        lines = [f"SUCCESS Step {step} | 12.50s | Reward 0.5312 | Turns 1.0\n"]
        lines += broken * [DROPPED.format("train/agg/effective/default/reward/mean, train/a/tokens/mean")]
        lines += [PRIME.format(step, 0.4 + step / 64, printed if broken else "Grad. Norm 0.5312 | ")]
        lines += broken * [DROPPED.format("optim/grad_norm")]
        append(place / "rl.log", *lines)
        if json_lines:
            finite = {} if broken else {"optim/grad_norm": 0.5312, "reward": 0.5312}
            logged = {
                "step": step,
                "entropy/all/mean": 0.4 + step / 64,
                "optim/lr": 1e-6,
                "perf/throughput": 8123.0,
            }
            append(place / "metrics.jsonl", json.dumps({**logged, **finite}) + "\n")
        found = page.discover()
        if step < 8:  # by so many the logs are known to be of one run
            continue
        (run,) = found.runs()
        for signal in ("grad_norm", "reward"):
            streak = found.value("rl_nonfinite_streak_steps", run=run, signal=signal)
            assert streak == (step - 8 if broken else 0), (step, signal)
    assert found.value("rl_step", run=run) == 12
    assert found.value("rl_restarts_total", run=run) == 0

"""Tables, as loops write them and as W&B exports them."""

from __future__ import annotations

import pytest

from exporter.runs.signals.record import Record
from exporter.runs.sources.csv_table import CsvTable


def read(*lines: str) -> list[Record]:
    assert CsvTable.recognises(lines[0].encode())
    return records([line.encode() for line in lines])


def records(lines: list[bytes]) -> list[Record]:
    source = CsvTable()
    found = [event for line in lines for event in source.parse(line)]
    assert not list(source.flush())
    return [event for event in found if isinstance(event, Record)]


STEPS = ("step", "Step", "global_step", "training/global_step", "_step", "iteration")
UPDATES = ("update", "update_index", "rl_update_index")
WANDB = (
    '"Step","Name: a - critic/rewards/mean","Name: a - critic/rewards/mean__MIN",'
    '"Name: a - critic/rewards/mean__MAX","Name: b - c - critic/rewards/mean","Name: a - actor/entropy"'
)
OF_A = Record(1, {"critic/rewards/mean": "0.5", "actor/entropy": "0.125"}, run="a")
OF_B = Record(1, {"critic/rewards/mean": "0.25"}, run="b - c")
HALF, LOW = {"reward_mean": "0.5"}, Record(1, {"entropy": "0.25"})
TWO = [Record(1, {"reward_mean": "0.5"}), Record(2, {"reward_mean": "0.75"})]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step;reward_mean", "12;0.5"], [Record(12, HALF)]),
        (["step\treward_mean\r", "12\t0.5\r"], [Record(12, HALF)]),
        (["step;reward_mean", "12;0,5"], [Record(12, HALF)]),  # a decimal point where semicolons separate
        (["\ufeffstep,reward_mean", "12.0,0.5"], [Record(12, HALF)]),
        (['"step","reward_mean","env, a"', '"12","0.5","0"'], [Record(12, {**HALF, "env, a": "0"})]),
        # blank cells are missing, never zero; a row of them is none
        (["step,reward_mean,entropy", "1,,0.25", "2, ,", "3,0.5,"], [LOW, Record(3, HALF)]),
        *(([f"{name},reward_mean", "7,0.5"], [Record(7, HALF)]) for name in STEPS),
        (["reward_mean,entropy", "0.5,0.1"], [Record(1, {**HALF, "entropy": "0.1"})]),
        # the trainer's steps win over calls of the logger, and updates over samples
        (["_step,trainer/global_step,reward_mean", "70,7,0.5"], [Record(7, HALF)]),
        *(([f"{name},global_step,reward_mean", "1,256,0.5", "2,512,0.75"], TWO) for name in UPDATES),
        (["step,entropy", "1,0.25", "step,reward_mean", "1,0.5"], [LOW, Record(1, HALF)]),
        # W&B's exports
        ([WANDB, '"1","0.5","0","1","0.25","0.125"'], [OF_A, OF_B]),
        ([WANDB, '"1","","","","0.25",""'], [OF_B]),
        (["Step,a - kl,a - kl__MIN,a - kl__MAX", "1,0.5,0,1"], [Record(1, {"kl": "0.5"}, run="a")]),
    ],
)  # fmt: skip
def test_rows_are_records_of_their_steps(lines: list[str], expected: list[Record]) -> None:
    assert read(*lines) == expected


@pytest.mark.parametrize(
    ("name", "cell", "seconds"),
    [
        ("_timestamp", "1700000000.5", 1700000000.5),
        ("timestamp", "2023-11-14T22:13:20Z", 1700000000.0),
        ("Wall time", "1700000000", 1700000000.0),
        ("timestamp", "1700000000000", 1700000000.0),
        ("timestamp", "12.5", None),
        ("timestamp", "yesterday", None),
        ("timestamp", "", None),
    ],
)
def test_times_are_taken_where_they_make_sense(name: str, cell: str, seconds: float | None) -> None:
    (found,) = read(f"step,reward_mean,{name}", f"1,0.5,{cell}")

    assert (found.time, found.values) == (seconds, {"reward_mean": "0.5"})


@pytest.mark.parametrize(
    "row", ["1", "1,2,3", "x,0.5", "-1,0.5", "1.5,0.5", ",0.5", "nan,0.5", "1" * 40 + ",0.5"]
)
def test_a_row_that_fits_no_header_is_a_value_error(row: str) -> None:
    source = CsvTable()
    assert not list(source.parse(b"step,reward_mean"))

    with pytest.raises(ValueError, match=r"cells|step"):
        list(source.parse(row.encode()))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step,date",
        "step",
        "reward_mean",
        "reward_mean,name",
        "learning_rate,epoch",
        "1,0.5",
        "step,0.5,reward_mean",
        '{"step":1,"reward_mean":0.5}',
        "[step,reward_mean]",
        "the reward, as you see, is the entropy",
        "this logs the loss, reward_mean, entropy, grad_norm",
        "| `a.log` | verl | reward_mean, reward_std, loss | learns |",
        "step,reward\x00_mean,entropy",
        "\x1b[32mstep,reward_mean",
        '"step,reward_mean',
    ],
)
def test_other_lines_are_no_header(line: str) -> None:
    assert not CsvTable.recognises(line.encode())

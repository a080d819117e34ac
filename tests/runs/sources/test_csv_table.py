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


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["", "\r"])
def test_separators_and_line_ends_do_not_matter(separator: str, end: str) -> None:
    lines = [separator.join(cells) + end for cells in (["step", "reward_mean"], ["12", "0.5"])]

    assert read(*lines) == [Record(12, {"reward_mean": "0.5"})]


def test_a_comma_between_digits_is_a_decimal_point_where_semicolons_separate() -> None:
    assert read("step;reward_mean", "12;0,5") == [Record(12, {"reward_mean": "0.5"})]


def test_a_byte_order_mark_is_not_a_part_of_the_first_name() -> None:
    assert read("\ufeffstep,reward_mean", "12,0.5") == [Record(12, {"reward_mean": "0.5"})]


def test_quoted_cells_may_hold_the_separator() -> None:
    found = read('"step","reward_mean","env, success"', '"12","0.5","0.25"')

    assert found == [Record(12, {"reward_mean": "0.5", "env, success": "0.25"})]


def test_blank_cells_are_missing_and_never_zero() -> None:
    first, second = read("step,reward_mean,entropy", "1,,0.25", "2, ,", "3,0.5,")

    assert (first.step, first.values) == (1, {"entropy": "0.25"})
    assert (second.step, second.values) == (3, {"reward_mean": "0.5"})


@pytest.mark.parametrize(
    "name", ["step", "Step", "global_step", "training/global_step", "_step", "iteration"]
)
def test_the_step_has_many_names(name: str) -> None:
    assert [found.step for found in read(f"{name},reward_mean", "7,0.5")] == [7]


def test_steps_of_the_trainer_win_over_calls_of_the_logger() -> None:
    (found,) = read("_step,trainer/global_step,reward_mean", "70,7,0.5")

    assert (found.step, found.values) == (7, {"reward_mean": "0.5"})


@pytest.mark.parametrize("name", ["update", "update_index", "rl_update_index"])
def test_updates_are_the_steps_where_what_is_called_a_step_counts_samples(name: str) -> None:
    found = read(f"{name},wandb_step,global_step,reward_mean", "1,256,256,0.5", "2,512,512,0.75")

    assert [record.step for record in found] == [1, 2]


def test_steps_whose_reward_is_blank_are_steps() -> None:
    found = read("step,loss,reward_mean", "1,0.5,0.25", "2,0.5,", "3,0.25,", "4,0.25,0.75")

    assert [record.step for record in found] == [1, 2, 3, 4]
    assert [record.values.get("reward_mean") for record in found] == ["0.25", None, None, "0.75"]


def test_rows_are_counted_where_no_step_is_reported() -> None:
    assert [found.step for found in read("reward_mean,entropy", "0.5,0.1", "0.5,0.1")] == [1, 2]


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


def test_a_header_in_the_middle_starts_other_columns() -> None:
    found = read("step,reward_mean", "1,0.5", "step,entropy,reward_mean", "1,0.25,0.75")

    assert found[1].values == {"entropy": "0.25", "reward_mean": "0.75"}


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


# W&B's exports

WANDB = (
    '"Step","Name: a - critic/rewards/mean","Name: a - critic/rewards/mean__MIN",'
    '"Name: a - critic/rewards/mean__MAX","Name: b - c - critic/rewards/mean","Name: a - actor/entropy"'
)


def test_columns_of_several_runs_are_records_of_each() -> None:
    found = read(WANDB, '"1","0.5","0","1","0.25","0.125"')

    assert found == [
        Record(1, {"critic/rewards/mean": "0.5", "actor/entropy": "0.125"}, run="a"),
        Record(1, {"critic/rewards/mean": "0.25"}, run="b - c"),
    ]


def test_a_run_that_has_ended_has_no_record() -> None:
    assert [found.run for found in read(WANDB, '"1","","","","0.25",""')] == ["b - c"]


def test_ranges_tell_w_and_b_s_columns_without_the_word_name() -> None:
    (found,) = read("Step,a - train/reward,a - train/reward__MIN,a - train/reward__MAX", "1,0.5,0,1")

    assert (found.run, found.values) == ("a", {"train/reward": "0.5"})


# anything

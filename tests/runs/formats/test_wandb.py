"""W&B's runs: their transaction log, and the folder around it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats import recognise_first
from exporter.runs.formats.trackers import WandbFile
from exporter.runs.readers import frames
from exporter.runs.readers.content import content, reader_of
from exporter.runs.readers.follow import BLOCK as LONGEST
from exporter.runs.readers.follow import Block
from exporter.runs.signals.record import Ended, Event, Record, Servers, TotalSteps, number
from stepwatch.operate import logfiles
from tests.runs.conftest import Watching
from tests.runs.lines import append, console, measured
from tests.runs.scrape import Scrape
from tests.runs.wandb_files import BLOCK, HEADER, exited, framed, history, printed, summary

FOLDER = "wandb/offline-run-20261122_152314-1qwmtbtl"
FILE = f"{FOLDER}/run-1qwmtbtl.wandb"
RUN = "offline-run-20261122_152314-1qwmtbtl"


# records


def cut(file: bytes, *ends: int) -> tuple[list[bytes], int]:
    """What is found in a file that grows to each of these sizes, and how many damaged places."""
    found, offset, broken = list[bytes](), 0, 0
    for end in (*ends, len(file)):
        block = frames.records(file[offset : max(end, offset)], Block(start=offset))
        found += block.lines
        offset += block.used
        broken += block.broken
    return found, broken


NUMBERED = 2
"""Bytes of a record's number, of the first 127 records."""

RECORDS = st.lists(st.binary(max_size=200) | st.integers(0, 3 * BLOCK).map(bytes), min_size=1, max_size=12)


@given(RECORDS, st.lists(st.integers(0, 10 * BLOCK), max_size=6).map(sorted))
def test_records_are_read_as_they_were_written_however_the_file_grows(
    records: list[bytes], ends: list[int]
) -> None:
    found, broken = cut(framed(*records), *ends)

    assert not broken
    assert [record[NUMBERED:] for record in found] == records


def test_a_damaged_block_is_left_out_once_another_follows() -> None:
    records = [printed(f"{number:05}" * 2000) for number in range(12)]
    file = bytearray(framed(*records))
    whole, _ = cut(bytes(file))
    file[BLOCK + 100] ^= 0xFF
    found, broken = cut(bytes(file))

    assert broken == 1
    assert found == [record for record in whole if record in found]
    assert found[0] == whole[0]
    assert found[-1] == whole[-1]
    assert cut(bytes(file[: 2 * BLOCK]))[1] == 0


def test_a_record_of_megabytes_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.wandb"
    path.write_bytes(framed(printed("before"), printed("x" * 2 * LONGEST), printed("after")))
    reader, lines, too_long = reader_of("wandb", lambda: [path]), list[bytes](), 0
    while block := reader.poll(0.0):
        lines += block.lines
        too_long += block.too_long

    assert [line[-5:] for line in lines] == [b"efore", b"after"]
    assert too_long >= 1
    assert reader.unread == 0


# what they say


def read(*messages: bytes) -> list[Event]:
    source = WandbFile()
    records, _ = cut(framed(*messages))
    return [event for record in records for event in source.parse(record)] + list(source.flush())


def records(*messages: bytes) -> list[Record]:
    return [event for event in read(*messages) if isinstance(event, Record)]


VALUES = st.floats() | st.integers(-(10**9), 10**9)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20))
def test_numbers_are_exactly_those_that_were_logged(logged: list[tuple[float, float]]) -> None:
    found = records(
        *(
            history({"train/reward": reward, "train/loss": loss, "train/global_step": step}, 3 * step)
            for step, (reward, loss) in enumerate(logged)
        )
    )

    assert [record.step for record in found] == list(range(len(logged)))
    for record, numbers in zip(found, logged, strict=True):
        for name, expected in zip(("train/reward", "train/loss"), numbers, strict=True):
            value = number(record.values[name])
            assert value is not None
            assert value == expected or (math.isnan(value) and math.isnan(expected))


def test_w_b_s_counter_of_calls_is_not_a_step_beside_the_trainer_s() -> None:
    rows = [history({"profiling/generate": 1.5}, 0)]
    for step in (1, 2, 3):
        rows.append(history({"train/reward": step / 10, "train/global_step": step}, 2 * step - 1))
        rows.append(history({"profiling/generate": 1.5}, 2 * step))

    assert [record.step for record in records(*rows) if "train/reward" in record.values] == [1, 2, 3]
    assert {record.step for record in records(*rows)} == {1, 2, 3}


def test_keys_within_others_are_joined_and_what_is_not_a_number_is_left_out() -> None:
    values = {
        "rewards.format": 0.5,
        "reward": 0.25,
        "text": "0.5",
        "table": {"_type": "table-file"},
        "on": True,
    }
    (found,) = records(history(values, 1))

    assert found.values == {"rewards/format": "0.5", "reward": "0.25"}


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (1, "failed"), (255, "failed")])
def test_the_exit_code_reports_how_the_run_ended(code: int, state: str) -> None:
    assert read(history({"reward": 0.5}, 1), exited(code))[-1] == Ended(state)


def test_the_total_is_that_of_the_bar_that_moves_with_the_steps() -> None:
    bars = [printed("Map: 100%|██████████| 1000/1000 [00:00<00:00]")]
    for step in (1, 2, 3):
        bars += [printed(f"\r  {step}%|▎         | {step}/60 [00:00<00:07,  7.55it/s]")]
        bars += [history({"train/reward": 0.5, "train/global_step": step}, step)]

    assert [event for event in read(*bars) if isinstance(event, TotalSteps)] == [TotalSteps(60)]


def bar(position: int, total: int, name: str = "", end: str = "") -> bytes:
    return printed(
        f"\r{name}{100 * position // total}%|###   | {position}/{total} [00:01<00:00,  1.2it/s]{end}"
    )


def each_step(*printed_at: bytes) -> list[bytes]:
    return [
        message for step in range(120) for message in (*printed_at, history({"reward": 0.5, "kl": 0.1}, step))
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [
            bar(0, 2, "Loading checkpoint shards: "),
            bar(2, 2, "Loading checkpoint shards: ", "\n"),
            *each_step(),
        ],
        [bar(50, 50, "Map: ", "\n"), *each_step()],
        each_step(bar(1, 1, "Epoch: ")),
        each_step(*(bar(position, 8, "Processed prompts: ") for position in range(1, 9))),
        each_step(),
    ],
)
def test_a_bar_that_meets_the_step_by_chance_has_no_total(messages: list[bytes]) -> None:
    assert [event for event in read(*messages) if isinstance(event, TotalSteps)] == []


def test_a_bar_of_the_prompts_of_a_step_that_is_half_done_has_no_total() -> None:
    messages = []
    for step in range(120):
        messages += [bar(step * 37 % 64, 64), history({"reward": 0.5, "kl": 0.1}, step)]

    assert [event for event in read(*messages) if isinstance(event, TotalSteps)] == []


def test_the_bar_of_the_training_is_found_among_others() -> None:
    messages = [bar(50, 50, "Map: ", "\n")]
    for step in range(0, 120, 2):
        messages += [*(bar(position, 8, "Processed prompts: ") for position in range(1, 9))]
        messages += [bar(step, 400), history({"reward": 0.5, "kl": 0.1}, step)]

    assert [event for event in read(*messages) if isinstance(event, TotalSteps)] == [TotalSteps(400)]


def test_what_was_printed_reports_servers_and_troubles() -> None:
    found = read(
        printed("AgentLoopManager: ['10.0.0.7:41233']\n"), printed("Traceback (most recent call last):\n")
    )

    assert found == [Servers(("10.0.0.7:41233",)), Ended("failed", certain=False)]


def test_a_file_is_recognised_by_its_first_row_with_a_signal() -> None:
    lines, _ = cut(framed(printed("loss"), summary({"loss": 0.5}), history({"profiling/x": 1.0}, 0)))
    assert recognise_first(lines, "wandb") is None
    lines, _ = cut(framed(printed("loss"), history({"train/loss": 0.5}, 0)))
    assert isinstance(recognise_first(lines, "wandb"), WandbFile)


# a file that W&B 0.31 wrote

REAL = Path(__file__).parents[2] / "logs" / "wandb" / "run-0.31.wandb"
"""40 steps of a bar, of which each second was logged as TRL's callback does it, with timings between them."""


def test_the_real_w_b_s_folder_is_one_run_with_the_trainer_s_steps(folder: Path, watched: Watching) -> None:
    path = folder / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(REAL.read_bytes())
    (folder / FOLDER / "files").mkdir()
    bar = "100%|██████████| 40/40 [00:40<00:00,  1.00it/s]\n"
    append(folder / FOLDER / "files/output.log", bar, "{'loss': 0.5, 'reward': 0.25, 'epoch': 0.05}\n")
    page = watched().look()

    assert shown(page) == {RUN: 20}
    assert page.value("rl_step", run=RUN) == 40
    assert page.state(RUN) == "finished"


# the folder


def reported(step: int) -> dict[str, Any]:
    """Values like no other run's, unless they are the same."""
    return measured(step, entropy=0.3 + step * 0.7919 % 0.4)


def rows(steps: range) -> list[bytes]:
    return [history({**reported(step), "training/global_step": step}, step) for step in steps]


def log(path: Path, *messages: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(framed(*messages))


def shown(page: Scrape) -> dict[str, float | None]:
    """The runs, each with its records."""
    return {run: page.value("rl_records_total", run=run) for run in page.runs()}


def test_a_run_s_folder_is_one_run(folder: Path, watched: Watching) -> None:
    log(folder / FILE, *rows(range(1, 31)))
    bar = "100%|██████████| 60/60 [00:09<00:00,  6.59it/s]\n"
    lines = [f"{{'loss': 0.5, 'reward': {step / 60}, 'epoch': {step / 60}}}\n" for step in range(1, 31)]
    for place in ("files/output.log", "logs/debug-internal.log", "logs/debug-core.log"):
        (folder / FOLDER / place).parent.mkdir(exist_ok=True)
        append(folder / FOLDER / place, bar, *lines)

    assert shown(watched().look()) == {RUN: 30}


def test_a_file_that_w_b_has_only_begun_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "run.wandb"
    path.write_bytes(HEADER)
    block = reader_of("wandb", lambda: [path]).poll(0.0)

    assert content(path) == "wandb"
    assert not block.lines


def test_a_file_without_a_step_hides_no_console_until_it_has_one(folder: Path, watched: Watching) -> None:
    log(folder / FILE, printed("loading"), summary({"loss": 0.5}))
    (folder / FOLDER / "files").mkdir()
    (folder / FOLDER / "logs").mkdir()
    append(folder / FOLDER / "logs/debug.log", console(1, reported(1)))
    console_log = folder / FOLDER / "files/output.log"
    append(console_log, *(console(step, reported(step)) for step in range(1, 31)))
    page = watched()
    found = page.look()
    assert (shown(found), found.value("rl_run_info", run=RUN, source="verl_console")) == ({RUN: 30}, 1)
    assert {each.path for each in logfiles.logs([str(folder)], folder)[0]} == {folder / FILE, console_log}
    log(folder / FILE, printed("loading"), *rows(range(1, 21)))
    page.discover()
    found = page.discover()

    assert (shown(found), found.value("rl_run_info", run=RUN, source="wandb")) == ({RUN: 20}, 1)
    assert {each.path for each in logfiles.logs([str(folder)], folder)[0]} == {folder / FILE}


def test_w_b_s_output_without_the_file_is_read_as_a_console(folder: Path, watched: Watching) -> None:
    path = folder / FOLDER / "files/output.log"
    path.parent.mkdir(parents=True)
    append(path, *(console(step, reported(step)) for step in range(1, 31)))

    assert shown(watched().look()) == {RUN: 30}


def test_a_console_that_is_ahead_of_w_b_s_file_gives_the_run_its_name(
    folder: Path, watched: Watching
) -> None:
    log(folder / FILE, *rows(range(1, 41)))
    (folder / "ppo").mkdir()
    append(folder / "ppo/console.log", *(console(step, reported(step)) for step in range(1, 61)))

    assert shown(watched().look()) == {"ppo/console": 60}


def test_a_file_that_grows_reports_its_steps_as_they_come(folder: Path, watched: Watching) -> None:
    whole = framed(*rows(range(1, 41)), exited(0))
    path = folder / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(HEADER)
    page = watched()
    assert shown(page.look()) == {}
    path.write_bytes(whole[: len(whole) // 2])
    half = shown(page.look(5.0))[RUN]
    path.write_bytes(whole)
    found = page.look(5.0)

    assert half is not None
    assert 1 < half < 40
    assert shown(found) == {RUN: 40}
    assert found.state(RUN) == "finished"

"""verl's console lines, in every form that log collectors make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Ended, Event, Record, ResponseLimit, TotalSteps, number
from exporter.runs.sources.line_consoles import VerlConsole
from tests.runs.lines import bare, console

RECORD = "step:12 - actor/entropy:0.41 - actor/lr:1e-06 - critic/score/mean:0.53125"


def read(line: str | bytes) -> list[Event]:
    return list(VerlConsole().parse(line if isinstance(line, bytes) else line.encode()))


def record(line: str | bytes) -> Record:
    """The only record that the line holds."""
    (found,) = [event for event in read(line) if isinstance(event, Record)]
    return found


def values(line: str | bytes) -> dict[str, float | None]:
    return {key: number(raw) for key, raw in record(line).values.items()}


@pytest.mark.parametrize(
    "line",
    [
        RECORD,
        f"(TaskRunner pid=48213) {RECORD}",
        f"(main_task pid=54569) {RECORD}",
        f"(TaskRunnerV1 pid=48213, ip=10.0.0.7) {RECORD}",
        f"\x1b[36m(TaskRunner pid=48213)\x1b[0m {RECORD}",
        f"\x1b[2m\x1b[36m(main_task pid=64899)\x1b[0m {RECORD}",
        f"\x1b[36m(TaskRunnerV1 pid=1, ip=10.0.0.7)\x1b[0m {RECORD}",
        f"\x1b[36m(TaskRunner pid=1)\x1b[0m {RECORD}\x1b[32m [repeated 3x across cluster]\x1b[0m",
        f"{RECORD} [repeated 3x across cluster]",
        f"{RECORD} [repeated 3x across cluster] (Set RAY_DEDUP_LOGS=0 to disable, or see https://docs.ray.io/x:1)",
        f"Training Progress:   3%|▎  | 12/435 [00:41<24:12,  3.43s/it]\r{RECORD}",
        f"Training Progress:   3%|▎  | 12/435 [00:41<24:12,  3.43s/it]{RECORD}",
        f"{RECORD}\rTraining Progress:   3%|▎  | 13/435 [00:44<24:08,  3.43s/it]",
        f"{RECORD}\r",
        f"\r{RECORD}\r",
        f"INFO:2025-11-30 14:48:22,001:{RECORD}".replace(":step", ": step"),
    ],
)
def test_a_record_is_read_whatever_stands_around_it(line: str) -> None:
    found = values(line)

    assert record(line).step == 12
    assert found == {"actor/entropy": 0.41, "actor/lr": 1e-06, "critic/score/mean": 0.53125}


@pytest.mark.parametrize(
    "key",
    [
        "val-aux/aime 2024/score/best@16/mean",
        "val/source: openai/acc",
        "train/lr(1e-3)",
        "a.b-c/d@e",
        "ключ/среднее",
    ],
)
def test_keys_may_hold_spaces_at_signs_and_colons(key: str) -> None:
    found = values(f"step:3 - {key}:np.float64(0.25) - critic/score/mean:0.5")

    assert found[key] == 0.25
    assert found["critic/score/mean"] == 0.5


def test_a_key_that_holds_the_separator_costs_no_other_field() -> None:
    found = values("step:3 - critic/score/mean:0.5 - val/math - hard/acc:0.25 - actor/entropy:0.4")

    assert (found["critic/score/mean"], found["actor/entropy"]) == (0.5, 0.4)


def test_the_last_field_of_a_line_cut_by_a_terminal_is_dropped() -> None:
    start = "step:10 - critic/score/mean:0.5 - "
    key = "v" * (4096 - len(start) - 4)
    cut = f"{start}{key}:0.5"
    assert len(cut) == 4096

    assert set(record(cut).values) == {"critic/score/mean"}
    assert set(record(cut + "\r").values) == {"critic/score/mean"}
    behind_ray = f"(TaskRunner pid=7) {cut}"[:4096]
    for line in bare(behind_ray, behind_ray + "\r"):
        assert set(record(line).values) == {"critic/score/mean"}
    assert set(record(cut + "1").values) == {"critic/score/mean", key}
    assert set(record(cut[:-1]).values) == {"critic/score/mean", key}


def test_a_line_longer_than_a_terminals_was_not_cut() -> None:
    fields = {f"val-core/{index}/mean@16": 0.5 for index in range(400)} | {"perf/throughput": 904.5}
    line = console(10, fields).rstrip("\n")
    assert len(line) > 4096

    assert values(line) == fields


def test_bad_utf8_costs_no_number() -> None:
    found = values(b"step:3 - val/\xff\xfe/acc:0.5 - critic/score/mean:0.25")

    assert found["critic/score/mean"] == 0.25


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step:12",
        "step:12 - ",
        "step:twelve - a:1",
        "step:12 - done with everything",
        "step:12 - resuming from: checkpoint",
        "global_step:12 - a:1",
        "Epoch 1: step:12, loss:0.5",
        f"step:{'9' * 5000} - critic/score/mean:0.5",
        f"step:{'9' * 20} - critic/score/mean:0.5",
    ],
)
def test_other_lines_give_no_record(line: str) -> None:
    assert read(line) == []
    assert not VerlConsole.recognises(line.encode())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Total training steps: 435", TotalSteps(435)),
        ("\x1b[36m(TaskRunner pid=1)\x1b[0m Total training steps: 435", TotalSteps(435)),
        ("              'total_training_steps': 180,", TotalSteps(180)),
        ("  'max_response_length': 512,", ResponseLimit(512)),
        ("Training Progress: 100%|██████████| 435/435 [2:05:11<00:00, 17.27s/it]", Ended("finished")),
        ("\"Final validation metrics: {'val/acc': 0.56}\"", Ended("finished")),
        ("Total time for train steps: 1520.4s", Ended("finished")),
        ("Job 'raysubmit_T3JpUGHRiC9U18UE' succeeded", Ended("finished")),
        ("Job 'raysubmit_T3JpUGHRiC9U18UE' failed", Ended("failed")),
        ("Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", Ended("failed")),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", Ended("failed")),
        ("Traceback (most recent call last):", Ended("failed", certain=False)),
        ("srun: error: n1: task 0: Exited with exit code 1", Ended("failed", certain=False)),
        ("Exit code: 137", Ended("failed", certain=False)),
        ("Aborted (core dumped)", Ended("failed", certain=False)),
    ],
)
def test_what_the_log_says_about_the_run_is_read(line: str, said: Event) -> None:
    assert read(line) == [said]


@pytest.mark.parametrize(
    "line",
    [
        "'total_training_steps': None,",
        "'total_training_steps': -1,",
        f"Total training steps: {'9' * 400}",
        "Training Progress:  99%|█████████▉| 434/435 [2:05:11<00:17, 17.27s/it]",
        "Training Progress: 100%|██████████| 434/435 [2:05:11<00:17, 17.27s/it]",
        "Exit code: 0",
        "process exited with code 0",
        "Job 'raysubmit_T3JpUGHRiC9U18UE' submitted successfully",
    ],
)
def test_what_says_nothing_certain_is_not_an_event(line: str) -> None:
    assert read(line) == []


def test_a_bar_glued_to_the_last_record_ends_the_run_after_it() -> None:
    bar = "Training Progress: 100%|██████████| 12/12 [01:00<00:00, 5.0s/it]"

    for line in (f"{bar}\r{RECORD}", f"{RECORD}\r{bar}"):
        found = read(line)
        assert isinstance(found[0], Record)
        assert found[1:] == [Ended("finished")]


keys = st.from_regex(r"[a-z_]+(/[a-z0-9@_.]+){0,3}", fullmatch=True)


@given(step=st.integers(0, 10**6), written=st.dictionaries(keys, st.floats(), min_size=1, max_size=20))
def test_what_verl_writes_is_what_is_read(step: int, written: dict[str, float]) -> None:
    found = record(console(step, {key: repr(value) for key, value in written.items()}).rstrip("\n"))

    assert found.step == step
    assert {key: repr(number(raw)) for key, raw in found.values.items()} == {
        k: repr(v) for k, v in written.items()
    }

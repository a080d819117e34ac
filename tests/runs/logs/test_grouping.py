"""Files that make up one log are one log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.runs.logs import find
from exporter.runs.logs.names import gathered, run_names

Make = Callable[..., Path]


def logs(folder: Path) -> dict[str, list[str]]:
    """The name of each run, and the files that it is read from."""
    found = list(gathered(find.files([str(folder)])))
    names = run_names({log.path: log.relative for log in found})
    return {names[log.path]: [str(part.relative_to(folder)) for part in log.parts] for log in found}


@pytest.fixture(name="make")
def _make(tmp_path: Path) -> Make:
    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x\n")
        return tmp_path

    return make


def test_a_file_that_stands_for_itself_stays_itself(make: Make) -> None:
    assert logs(make("ppo/gsm8k.jsonl")) == {"ppo/gsm8k": ["ppo/gsm8k.jsonl"]}


def test_event_files_of_a_folder_are_one_log_in_the_order_they_were_begun(make: Make) -> None:
    early, late = "tb/ppo/events.out.tfevents.99.host.1.0", "tb/ppo/events.out.tfevents.1700.host.1.0"

    assert logs(make(late, early)) == {"tb/ppo": [early, late]}


def test_the_starts_of_a_hugging_face_run_are_one_log(make: Make) -> None:
    first = "out/runs/Oct21_18-43-39_node1/events.out.tfevents.1000.node1.1.0"
    second = "out/runs/Nov02_08-00-00_node2/events.out.tfevents.2000.node2.1.0"

    assert logs(make(first, second)) == {"out": [first, second]}


def test_the_states_of_a_runs_checkpoints_are_one_log_the_newest_last(make: Make) -> None:
    old, new = "out/checkpoint-90/trainer_state.json", "out/checkpoint-100/trainer_state.json"

    assert logs(make(new, old)) == {"out": [old, new]}


def test_the_state_that_is_saved_at_the_end_comes_after_all_checkpoints(make: Make) -> None:
    parts = ["out/checkpoint-100/trainer_state.json", "out/trainer_state.json"]

    assert logs(make(*parts)) == {"out": parts}


def test_a_checkpoint_that_is_deleted_leaves_the_log_where_it_is(make: Make) -> None:
    folder = make("out/checkpoint-1/trainer_state.json", "out/checkpoint-2/trainer_state.json")
    (before,) = gathered(find.files([str(folder)]))
    (folder / "out/checkpoint-1/trainer_state.json").unlink()
    (after,) = gathered(find.files([str(folder)]))

    assert before.path == after.path
    assert len(after.parts) == 1


@pytest.mark.parametrize(
    "name", ["events.out.tfevents.5.host", "Oct21_18-43-39_node1/events.out.tfevents.5.host"]
)
def test_event_files_right_in_the_watched_folder_have_a_name_too(make: Make, name: str) -> None:
    (run,) = logs(make(name))

    assert run

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


STARTS = "out/runs/{}/events.out.tfevents.{}.node1.1.0"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ppo/gsm8k", ["ppo/gsm8k.jsonl"]),
        ("tb/ppo", [f"tb/ppo/events.out.tfevents.{begun}.host.1.0" for begun in (99, 1700)]),
        ("out", [STARTS.format("Oct21_18-43-39_node1", 1000), STARTS.format("Nov02_08-00-00_node2", 2000)]),
        ("out", [f"out/{folder}trainer_state.json" for folder in ("checkpoint-90/", "checkpoint-100/", "")]),
    ],
)
def test_the_parts_of_a_run_are_one_log_in_the_order_they_were_begun(
    make: Make, name: str, parts: list[str]
) -> None:
    assert logs(make(*reversed(parts))) == {name: parts}


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

"""Event files, documents and tables that grow, from the file to the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from tests.runs.conftest import Watching
from tests.runs.events import event
from tests.runs.lines import append

# event files


class Trainer:
    """Writes event files with TensorBoard's own writer of records; each start has a file of its own."""

    def __init__(self) -> None:
        self.starts = 0
        self._file: BinaryIO | None = None

    def begins(self, folder: Path) -> None:
        self.ends()
        self.starts += 1
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"events.out.tfevents.{1_700_000_000 + self.starts}.host.1.0").open("wb")
        self._write(event(0, file_version="brain.Event:2"))

    def goes_on(self, path: Path) -> None:
        """Write to that file from now on."""
        self.ends()
        self._file = path.open("ab")

    def logs(self, *steps: int, at: float = 1.5) -> None:
        for step in steps:
            for tag, value in (("train/reward", 0.3 + step / 100), ("train/grad_norm", 1.0 + step % 5 / 7)):
                self._write(event(step, Summary.Value(tag=tag, simple_value=value), wall_time=at))

    def ends(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, payload: bytes) -> None:
        assert self._file
        RecordWriter(self._file).write(payload)
        self._file.flush()


@pytest.fixture(name="trainer")
def _trainer() -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.ends()


def test_scalars_are_on_the_next_page(folder: Path, watched: Watching, trainer: Trainer) -> None:
    page = watched()
    trainer.begins(folder / "ppo")
    trainer.logs(1)
    page.discover()
    for step in range(2, 8):
        trainer.logs(step, at=page.clock.wall)
        found = page.look(1.0)
        assert found.value("rl_step", run="ppo") == step
        assert found.value("rl_reward", run="ppo") == pytest.approx(0.3 + step / 100)

    assert found.value("rl_records_total", run="ppo") == 7
    assert found.state("ppo") == "running"


@pytest.mark.parametrize(
    ("first", "second", "run"),
    [("ppo", "ppo", "ppo"), ("out/runs/Oct21_18-43-39_node1", "out/runs/Oct22_08-00-00_node2", "out")],
    ids=["a second file", "a folder for each start"],
)
def test_a_resume_goes_on_in_a_file_of_its_own_and_is_one_run(
    folder: Path, watched: Watching, trainer: Trainer, *, first: str, second: str, run: str
) -> None:
    page = watched()
    trainer.begins(folder / first)
    trainer.logs(*range(1, 21))
    page.look()
    trainer.begins(folder / second)
    trainer.logs(*range(11, 26))
    found = page.discover()

    assert found.runs() == {run}
    assert found.value("rl_step", run=run) == 25
    assert found.value("rl_records_total", run=run) == 25
    assert found.value("rl_resumes_total", run=run) == 1
    assert found.value("stepwatch_files", kind="log") == 1


def test_an_exporter_that_starts_late_reads_all_files_of_a_run(
    folder: Path, tmp_path: Path, watched: Watching, trainer: Trainer
) -> None:
    for first, last in ((1, 10), (8, 20), (15, 30)):
        trainer.begins(folder / "ppo")
        trainer.logs(*range(first, last + 1))
    page = watched(state_dir=tmp_path / "state")
    found = page.look()
    page.watch.save()
    again = watched(state_dir=tmp_path / "state").look()

    for shown in (found, again):
        assert shown.value("rl_records_total", run="ppo") == 30
        assert shown.value("rl_resumes_total", run="ppo") == 2


# documents


def entries(last: int, **more: Any) -> list[dict[str, Any]]:
    return [{"step": step, "epoch": step / 100, "reward": step / 50, **more} for step in range(1, last + 1)]


def checkpoint(folder: Path, last: int, **more: Any) -> None:
    path = folder / f"checkpoint-{last}/trainer_state.json"
    path.parent.mkdir(parents=True)
    state = {"global_step": last, "max_steps": 100, "log_history": entries(last), **more}
    path.write_text(json.dumps(state, indent=2))


def test_each_checkpoints_state_brings_the_steps_since_the_last_one(folder: Path, watched: Watching) -> None:
    page = watched()
    checkpoint(folder / "out", 10)
    page.look()
    for last in (20, 30, 40):
        checkpoint(folder / "out", last)
        found = page.discover()
        assert found.value("rl_step", run="out") == last
        assert found.value("rl_records_total", run="out") == last

    assert found.runs() == {"out"}
    assert found.value("rl_total_steps", run="out") == 100
    assert found.value("rl_resumes_total", run="out") == 0
    assert found.state("out") == "running"


def test_a_state_that_is_written_in_place_and_old_checkpoints_that_go_cost_nothing(
    folder: Path, watched: Watching
) -> None:
    page, out = watched(), folder / "out"
    checkpoint(out, 10)
    page.look()
    checkpoint(out, 20)
    page.discover()
    (out / "checkpoint-10/trainer_state.json").unlink()
    (out / "trainer_state.json").write_text(
        json.dumps({"global_step": 100, "max_steps": 100, "log_history": entries(100)}, indent=2)
    )
    found = page.discover()

    assert found.runs() == {"out"}
    assert found.value("rl_records_total", run="out") == 100
    assert found.value("rl_resumes_total", run="out") == 0
    assert page.look(70.0).state("out") == "finished"


def test_a_state_that_is_half_written_is_read_when_it_is_whole(folder: Path, watched: Watching) -> None:
    page, path = watched(), folder / "out/trainer_state.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"log_history": entries(10), "max_steps": 100}, indent=2))
    page.look()
    whole = json.dumps({"log_history": entries(20), "max_steps": 100}, indent=2)
    path.write_text(whole[: len(whole) // 2])
    assert page.look(1.0).value("rl_step", run="out") == 10
    path.write_text(whole)
    found = page.look(1.0)

    assert found.value("rl_step", run="out") == 20
    assert found.value("rl_records_total", run="out") == 20


def test_a_trainer_that_resumes_from_an_older_checkpoint_is_one_run_with_one_resume(
    folder: Path, watched: Watching
) -> None:
    page, path = watched(), folder / "out/trainer_state.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"log_history": entries(30), "max_steps": 100}, indent=2))
    page.look()
    resumed = entries(20) + [{**entry, "reward": 9.0} for entry in entries(40)[20:]]
    path.write_text(json.dumps({"log_history": resumed, "max_steps": 100}, indent=2))
    found = page.look(1.0)

    assert found.value("rl_step", run="out") == 40
    assert found.value("rl_records_total", run="out") == 40
    assert found.value("rl_resumes_total", run="out") == 1
    assert found.value("rl_reward", run="out") == 9.0


# tables


def test_a_table_that_grows_is_on_the_next_page(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "ppo.csv"
    append(log, "step,reward_mean,kl_divergence\r\n", "1,0.5,0.01\r\n")
    page.look()
    for step in range(2, 7):
        append(log, f"{step},{0.5 + step / 10},\r\n")
        found = page.look(1.0)
        assert found.value("rl_step", run="ppo") == step

    assert found.value("rl_reward", run="ppo") == pytest.approx(1.1)
    assert found.value("rl_kl", run="ppo") == 0.01
    assert found.value("rl_records_total", run="ppo") == 6


def test_the_runs_of_one_table_have_states_of_their_own(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "both.csv"
    names = [f"{run} - {key}" for run in ("a", "b") for key in ("critic/rewards/mean", "actor/entropy")]
    append(log, ",".join(["Step", *(f'"Name: {name}"' for name in names)]) + "\n")
    for step in range(1, 10):
        append(log, f"{step},{step / 10},0.5,{step / 20},0.7\n")
        found = page.look(60.0)
    assert found.runs() == {"both/a", "both/b"}
    assert [found.state(run) for run in ("both/a", "both/b")] == ["running", "running"]
    for step in range(10, 25):
        append(log, f"{step},,,{step / 20},0.7\n")
        found = page.look(60.0)

    assert [found.state(run) for run in ("both/a", "both/b")] == ["stopped", "running"]
    assert [found.value("rl_step", run=run) for run in ("both/a", "both/b")] == [9, 24]
    assert page.look(700.0).state("both/b") == "stopped"


def test_a_table_that_is_exported_again_counts_nothing_twice(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "ppo.csv"
    rows = [f"{step},{step / 10},{step / 90}\n" for step in range(1, 31)]
    for last in (10, 20, 30):
        log.write_text("step,reward_mean,entropy\n" + "".join(rows[:last]))
        found = page.discover()

    assert found.value("rl_step", run="ppo") == 30
    assert found.value("rl_records_total", run="ppo") == 30

"""Writers of event files that end: PyTorch's, which opens the file for each append, and tensorboardX's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs.logs.processes import CONFIRMATIONS, Writers
from tests.runs.conftest import Watched, Watching
from tests.runs.logs.test_writers import looked

WRITERS = {
    "pytorch": """
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter  # SummaryWriter of torch uses it
writer = EventFileWriter(sys.argv[1])
def log(step):
    summary = summary_pb2.Summary()
    for tag in ("train/reward", "train/kl"):
        summary.value.add(tag=tag, simple_value=step / 7)
    writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))
    writer.flush()
""",
    "tensorboardX": """
from tensorboardX import SummaryWriter
writer = SummaryWriter(sys.argv[1])
def log(step):
    for tag in ("train/reward", "train/kl"):
        writer.add_scalar(tag, step / 7, step)
    writer.flush()
""",
}


class Trainer:
    """A real process that logs a step for each line that it gets."""

    def __init__(self, folder: Path, writer: str) -> None:
        loop = "for line in sys.stdin:\n    log(int(line))\n    print(flush=True)"
        code = f"import sys, time\n{WRITERS[writer]}\n{loop}"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, folder], stdin=pipe, stdout=pipe, text=True
        )

    def log(self, *steps: int) -> None:
        assert self.process.stdin
        assert self.process.stdout
        for step in steps:
            self.process.stdin.write(f"{step}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(name="trains")
def _trains(folder: Path) -> Iterator[Callable[[str], Trainer]]:
    started: list[Trainer] = []

    def trains(writer: str) -> Trainer:
        started.append(Trainer(folder / "ppo", writer))
        return started[-1]

    yield trains
    for trainer in started:
        trainer.kill()


Trains = Callable[[str], Trainer]


def followed(page: Watched, trainer: Trainer, last: int = 10) -> None:
    """Log steps while the page looks on."""
    trainer.log(1)
    page.look()
    for step in range(2, last + 1):
        trainer.log(step)
        page.look(1.5)
    assert page.scrape().state("ppo") == "running"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_run_whose_trainer_is_killed_stops_within_seconds(
    folder: Path, watched: Watching, trains: Trains, writer: str
) -> None:
    (folder / "ppo").mkdir()
    page, trainer = watched(proc=Path("/proc")), trains(writer)
    followed(page, trainer)
    assert page.scrape().value("rl_run_writer_present", run="ppo") == 1
    trainer.kill()
    page.look(1.5)
    found = page.look(11.0)

    assert (found.state("ppo"), found.value("rl_run_writer_present", run="ppo")) == ("stopped", 0)


@pytest.mark.parametrize(("planned", "state"), [(100, "vanished"), (10, "finished")])
def test_a_checkpoint_beside_it_reports_whether_the_steps_that_were_planned_are_done(
    folder: Path, watched: Watching, trains: Trains, planned: int, state: str
) -> None:
    checkpoint = folder / "ppo/checkpoint-9"
    checkpoint.mkdir(parents=True)
    page, trainer = watched(proc=Path("/proc")), trains("pytorch")
    followed(page, trainer)
    history = [{"step": step, "epoch": 0.1, "reward": step / 7, "kl": step / 7} for step in range(1, 10)]
    document = {"global_step": 9, "max_steps": planned, "log_history": history}
    (checkpoint / "trainer_state.json").write_text(json.dumps(document))
    page.discover()
    assert len(page.look(6.0).runs()) == 1
    trainer.kill()
    page.look(1.5)

    assert page.look(11.0).state("ppo") == state


def test_a_process_that_lives_on_is_not_a_sign_that_its_training_does(
    folder: Path, watched: Watching, trains: Trains
) -> None:
    """A notebook outlives its trainings, and nothing in an event file says that one is done."""
    (folder / "ppo").mkdir()
    page = watched(proc=Path("/proc"))
    followed(page, trains("pytorch"))

    assert page.look(590.0).state("ppo") == "running"
    assert page.look(20.0).state("ppo") == "stopped"


def test_a_run_that_ended_before_the_exporter_began_stays_unseen_while_its_process_lives(
    folder: Path, watched: Watching, trains: Trains
) -> None:
    (folder / "ppo").mkdir()
    trains("pytorch").log(1, 2, 3)
    for file in (folder / "ppo").iterdir():
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    page = watched(proc=Path("/proc"))
    for _ in range(3 * CONFIRMATIONS):
        found = page.look(1.5)

    assert found.runs() == set()
    assert found.value("stepwatch_dormant_runs") == 1


# which process a name means


def present(folder: Path, name: str) -> bool | None:
    (folder / name).touch()
    holders = Writers()
    looked(holders, folder / name, CONFIRMATIONS)
    return holders.of(folder / name).present()


@pytest.fixture(name="process")
def _process() -> Iterator[int]:
    """A process of another program, by its id."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


HOST = socket.gethostname()


@pytest.mark.parametrize(
    "name",
    [
        "events.out.tfevents.{now}.other-host.{process}.0",
        "events.out.tfevents.{now}.x{host}.{process}.0",
        "events.out.tfevents.{now}.{host}",
        "events.out.tfevents.{now}.{host}.x{process}.0",
        "events.out.tfevents.{now}.{host}.999999999.0",
        "events.out.tfevents.{past}.{host}.{process}.0",
        "events.out.tfevents.{now}.{host}.{kernel}.0",
    ],
)
def test_nothing_is_said_of_a_writer_elsewhere_or_of_a_process_that_began_after_the_file(
    tmp_path: Path, process: int, name: str
) -> None:
    now = int(time.time()) + 1
    kernel = 999_999_999 if Path("/proc/2/exe").exists() else 2  # a container shows none of its threads
    name = name.format(now=now, past=now - 60, host=HOST, process=process, kernel=kernel)

    assert present(tmp_path, name) is None

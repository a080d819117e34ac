"""A run's process in the run exporter and the same process on a GPU in the GPU exporter become one series."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.runs import collector as watch_module
from tests import real
from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import Exporter
from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.promtool import Group
from tests.rules.series import EXPORTER, selector
from tests.runs.conftest import Clock, Watched
from tests.runs.lines import measured, verl_json
from tests.runs.scrape import Scrape

GPUS = {"job": "gpu", "instance": "a:9411"}
AT = 62
TRAINER = (
    "import sys, time\n"
    "log, device = open(sys.argv[1], 'a'), open(sys.argv[2])\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.fixture(name="trainer")
def _trainer(tmp_path: Path) -> Iterator[int]:
    """The id of a process that writes a log and has a GPU open."""
    for folder in ("runs", "dev"):
        tmp_path.joinpath(folder).mkdir()
    tmp_path.joinpath("dev/nvidia2").touch()
    log = tmp_path / "runs/ppo.jsonl"
    log.write_text(verl_json(1, measured(1)))
    command = [sys.executable, "-c", TRAINER, str(log), str(tmp_path / "dev/nvidia2")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def _proc(folder: Path, pid: int) -> Path:
    """This machine's ``/proc`` with NVIDIA's driver, and of its processes this one alone."""
    for name in ("sys", "self", "stat", str(pid)):
        folder.mkdir(exist_ok=True)
        folder.joinpath(name).symlink_to(f"/proc/{name}")
    for gpu in range(4):
        information = folder / f"driver/nvidia/gpus/0000:0{gpu}:00.0/information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid(gpu)}\nDevice Minor: \t {gpu}\n")
    return folder


def _scraped(page: Scrape, names: tuple[str, ...], target: dict[str, str]) -> dict[str, str]:
    """Samples of a page as Prometheus stores them."""
    return {
        selector(name, **dict(labels), **target): f"{value}+0x99"
        for (name, labels), value in page.samples.items()
        if name in names
    }


def _recorded(folder: Path, series: dict[str, str], by: str, gpus: tuple[int, ...]) -> None:
    """Fail unless the run uses exactly these GPUs."""
    used = [
        selector("rl_run_gpu", run="ppo", by=by, instance="a:9411", gpu=str(gpu), uuid=uuid(gpu))
        for gpu in gpus
    ]
    values = {(f"sum({each})", AT): 1.0 for each in used}
    group = Group("run_gpus", series, [], {**values, ("count(rl_run_gpu)", AT): float(len(gpus))})
    file = unit.write(folder, "run_gpus", rendered.recorded("run_gpus"), [group])
    unit.check(real.prometheus("3.13").tool, file)


@pytest.mark.parametrize("processes", [0, 4])
def test_a_run_uses_the_gpu_that_its_process_uses_or_else_those_of_its_machine(
    *,
    driver: Driver,
    start: Callable[..., Exporter],
    trainer: int,
    processes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.tell("gpus=4", f"process=2:compute:{trainer}:300:10", "process=1:compute:5000001:300:10")
    flags = ("--interval=0.1", "--retry=0.3", f"--processes={processes}")
    wanted = "gpu_process_memory_bytes" if processes else "gpu_processes"
    gpus = start(*flags).until(lambda found: found.all(wanted))
    clock = Clock()
    monkeypatch.setattr(watch_module, "time", clock)
    runs = Watched(clock, tmp_path / "runs", proc=_proc(tmp_path / "proc", trainer))
    for _ in range(4):
        runs.look(2.0)
    series = {
        **_scraped(gpus, ("gpu_up", "gpu_process_memory_bytes"), GPUS),
        **_scraped(runs.look(20.0), ("rl_run_gpu_process_info", "rl_run_node_gpu_info"), EXPORTER),
    }

    if processes:
        _recorded(tmp_path, series, "process", (2,))
    else:
        _recorded(tmp_path, series, "node", (0, 1, 2, 3))

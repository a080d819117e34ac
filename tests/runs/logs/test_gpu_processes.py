"""Which processes of a run have a GPU open, and which GPUs its machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.runs.logs.processes import MOST_PROCESSES, GPUProcesses, RunGPUs
from tests.runs.conftest import Watching
from tests.runs.fake_proc import pretend
from tests.runs.lines import console, measured, verl_json

GPU = "/dev/nvidia3"
SHELL = 10
RAY_LOGS = "/tmp/ray/session_2026-11-23_02-15-48_057635_30/logs"
DRIVER_LOG = f"{RAY_LOGS}/python-core-driver-01000000{48 * 'f'}_30.log"
PPO, SFT = (Path("/runs/ppo.jsonl"), ""), (Path("/runs/sft.jsonl"), "")
BOOT = "086fb401-f216-477e-b8c5-7e172c88ba46"
UUIDS = tuple(f"GPU-{number}9a1b2c3-0000-4000-8000-00000000000{number}" for number in range(2))


class Machine:
    """A ``/proc`` of a machine with GPUs."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        for number, uuid in enumerate(UUIDS):
            self.write(f"driver/nvidia/gpus/0000:0{number}:00.0/information", _information(uuid, number))
        self.write("sys/kernel/random/boot_id", f"{BOOT}\n")
        self.link("self/ns/pid", "pid:[4026531836]")
        self.start(1, parent=0, name="systemd")
        self.start(SHELL, name="bash", command="-bash")

    def start(
        self,
        pid: int,
        *opens: str,
        parent: int = 1,
        group: int | None = None,
        session: int = 0,
        name: str = "python",
        command: str = "",
    ) -> None:
        """Add a process: a leader of its own group and session unless said otherwise."""
        group = pid if group is None else group
        behind = f"S {parent} {group} {session or group} 0 -1 {' '.join(13 * '0')} {1000 + pid} 0"
        self.write(f"{pid}/stat", f"{pid} ({name}) {behind}\n")
        self.write(f"{pid}/cmdline", (command or f"python {pid}").replace(" ", "\0"))
        self.proc.joinpath(f"{pid}/fd").mkdir()
        for number, target in enumerate(("/dev/null", "socket:[7]", *opens)):
            self.link(f"{pid}/fd/{number}", target)

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def write(self, path: str, text: str) -> None:
        self.proc.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        self.proc.joinpath(path).write_text(text)

    def link(self, path: str, target: str) -> None:
        self.proc.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        self.proc.joinpath(path).symlink_to(target)

    def of(self, *writers: int) -> tuple[int, ...]:
        """The processes of the only run, whose logs these write."""
        return GPUProcesses(self.proc).look({PPO: map(str, writers)})[PPO].processes

    def of_two(self, ppo: int, sft: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = GPUProcesses(self.proc).look({PPO: [str(ppo)], SFT: [str(sft)]})
        return found[PPO].processes, found[SFT].processes


def _information(uuid: str, minor: int) -> str:
    return f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 77\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "proc")


def test_the_writer_and_what_it_started_are_the_runs(machine: Machine) -> None:
    machine.start(20, GPU, parent=SHELL)
    machine.start(21, GPU, parent=20)  # such as a rollout engine, in a session of its own
    machine.start(22, parent=20, group=20)  # such as a data loader
    machine.start(23, "/dev/nvidiactl", "/dev/nvidia-uvm", parent=20)
    machine.start(24, GPU, parent=21, group=21)
    machine.start(30, GPU, parent=SHELL)

    assert machine.of(20) == (20, 21, 24)


def test_a_trainer_whose_output_goes_through_a_pipe_is_the_runs(machine: Machine) -> None:
    machine.start(20, GPU, parent=SHELL, group=20, session=SHELL)
    machine.start(21, parent=SHELL, group=20, session=SHELL, name="tee")
    machine.start(22, GPU, parent=20, group=20, session=SHELL)
    machine.start(30, GPU, parent=SHELL, group=30, session=SHELL)

    assert machine.of(21) == (20, 22)


def test_what_a_script_starts_is_the_runs(machine: Machine) -> None:
    machine.start(20, parent=SHELL, group=20, session=SHELL, name="bash")
    machine.start(21, GPU, parent=20, group=20, session=SHELL)
    machine.start(22, parent=20, group=20, session=SHELL, name="tee")
    machine.start(23, GPU, parent=20)

    assert machine.of(22) == (21, 23)


def test_what_a_script_starts_for_two_runs_is_neithers_but_what_each_started_is_its_own(
    machine: Machine,
) -> None:
    machine.start(20, parent=SHELL, group=20, session=SHELL, name="bash")
    for first in (30, 40):
        machine.start(first, GPU, parent=20, group=20, session=SHELL)  # writes its log itself
        machine.start(first + 1, GPU, parent=first, group=20, session=SHELL)
    machine.start(50, GPU, parent=20, group=20, session=SHELL)

    assert machine.of_two(30, 40) == ((30, 31), (40, 41))


def test_a_writer_of_two_runs_reports_whose_nothing_is(machine: Machine) -> None:
    machine.start(20, GPU, parent=SHELL)

    assert machine.of_two(20, 20) == ((), ())


def test_all_ranks_of_a_launcher_are_the_runs(machine: Machine) -> None:
    machine.start(20, parent=SHELL, group=20, session=SHELL, command="torchrun train.py")
    for rank in range(30, 34):
        machine.start(rank, GPU, parent=20, command="python -u train.py")
        machine.start(rank + 10, GPU, parent=rank)

    assert machine.of(30) == (30, 31, 32, 33, 40, 41, 42, 43)


def test_ranks_may_be_below_scripts_of_their_own(machine: Machine) -> None:
    machine.start(20, parent=SHELL, group=20, session=SHELL, command="torchrun --no-python rank.sh")
    for rank in (30, 31):
        machine.start(rank, parent=20, name="bash", command="bash rank.sh")
        machine.start(rank + 10, GPU, parent=rank, group=rank)

    assert machine.of(40) == (40, 41)


def test_processes_whose_groups_are_outside_of_the_namespace_have_no_group_in_common(
    machine: Machine,
) -> None:
    machine.start(11, parent=0, group=0)
    machine.start(20, GPU, parent=11, group=0)
    machine.start(30, GPU, parent=0, group=0)
    machine.start(31, GPU, parent=11, group=0)

    assert machine.of(20) == (20,)


def test_one_command_that_a_person_gave_twice_is_two_runs(machine: Machine) -> None:
    for pid in (20, 30):
        machine.start(pid, GPU, parent=SHELL, group=pid, session=SHELL, command="python train.py")

    assert machine.of(20) == (20,)


def test_different_commands_in_sessions_of_their_own_are_two_runs(machine: Machine) -> None:
    machine.start(20, name="jupyter", parent=SHELL)
    for pid in (30, 31):
        machine.start(pid, GPU, parent=20, command=f"python -m ipykernel -f {pid}.json")

    assert machine.of(30) == (30,)


@pytest.mark.parametrize("writer", [30, 32])
def test_the_workers_of_a_ray_that_the_run_started_are_the_runs(machine: Machine, writer: int) -> None:
    machine.start(30, DRIVER_LOG, parent=SHELL, group=30, session=SHELL)
    machine.start(31, parent=30, group=30, session=SHELL, name="raylet")
    for worker, name in ((32, "ray::TaskRunner"), (33, "ray::WorkerDict"), (34, "ray::WorkerDict")):
        machine.start(worker, GPU, parent=31, group=worker, session=SHELL, name=name, command=name)

    assert machine.of(writer) == (32, 33, 34)


@pytest.mark.parametrize("writer", [30, 42])
def test_the_workers_of_a_ray_that_was_there_before_may_be_any_runs(machine: Machine, writer: int) -> None:
    machine.start(30, DRIVER_LOG, GPU, parent=SHELL)
    machine.start(40, name="ray", command="ray start --head --block", parent=SHELL)
    machine.start(41, parent=40, group=40, name="raylet")
    for worker in (42, 43):
        machine.start(worker, GPU, parent=41, group=worker, session=40, name="ray", command="ray::WorkerDict")

    assert machine.of(writer) == (writer,)


def test_a_process_that_ended_is_no_longer_served(machine: Machine) -> None:
    machine.start(20, GPU, parent=SHELL)
    machine.start(21, GPU, parent=20)
    machine.start(22, parent=20)
    processes, writers = GPUProcesses(machine.proc), {PPO: ["20"]}
    assert processes.look(writers)[PPO].processes == (20, 21)
    machine.end(21)
    machine.end(22)
    machine.start(22, GPU, parent=20)

    assert processes.look(writers)[PPO].processes == (20, 22)


def test_a_process_whose_id_another_has_by_now_counts_only_if_that_has_a_gpu_open(machine: Machine) -> None:
    machine.start(20, parent=SHELL)
    machine.start(21, GPU, parent=20)
    processes, writers = GPUProcesses(machine.proc), {PPO: ["20"]}
    assert processes.look(writers)[PPO].processes == (21,)
    machine.end(21)
    machine.start(21, parent=20)
    machine.write("21/stat", machine.proc.joinpath("21/stat").read_text().replace("1021", "2021"))

    assert processes.look(writers)[PPO].processes == ()


def test_ids_that_are_reused_while_processes_are_read_make_no_endless_line(machine: Machine) -> None:
    machine.start(20, GPU, parent=21, group=20)
    machine.start(21, GPU, parent=20, group=20)
    machine.start(22, GPU, parent=22)

    assert machine.of(20) == (20, 21)


def test_of_a_run_with_very_many_processes_the_first_are_served(machine: Machine) -> None:
    machine.start(20, parent=SHELL)
    for pid in range(1000, 1000 + 2 * MOST_PROCESSES):
        machine.start(pid, GPU, parent=20)

    assert machine.of(20) == tuple(range(1000, 1000 + MOST_PROCESSES))


def test_the_machines_gpus_are_known_by_uuid_once_the_driver_has_initialized_them(machine: Machine) -> None:
    unknown = "GPU-????????-????-????-????-????????????"
    machine.write("driver/nvidia/gpus/0000:09:00.0/information", _information(unknown, 2))

    found = GPUProcesses(machine.proc).look({PPO: []})
    assert found == {PPO: RunGPUs((), "086fb401f216-4026531836", UUIDS)}


def test_without_nvidias_driver_no_process_is_looked_at(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start(20, GPU, parent=SHELL)
    shutil.rmtree(machine.proc / "driver")
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("looked"))

    assert GPUProcesses(machine.proc).look({PPO: ["20"]}) == {}


def test_real_processes_of_a_real_trainer_are_found(machine: Machine, tmp_path: Path) -> None:
    device = tmp_path / "dev/nvidia0"
    device.parent.mkdir()
    device.touch()
    # Each line in one write: three processes have one pipe.
    rank = "import sys, time; file = open(sys.argv[1]); print('ready\\n', end='', flush=True); time.sleep(60)"
    launcher = (
        "import subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], start_new_session=True)"
        " for _ in range(2)]\n"
        "print(f'{ranks[0].pid} {ranks[1].pid}\\n', end='', flush=True)\n"
        "sys.stdin.read()\n"
        "[rank.kill() for rank in ranks]\n"
    )
    command = [sys.executable, "-c", launcher, rank, str(device)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=True) as agent:
        assert agent.stdout
        assert agent.stdin
        said = sorted(agent.stdout.readline() for _ in range(3))
        assert said[1:] == ["ready\n", "ready\n"]
        ranks = tuple(sorted(map(int, said[0].split())))
        for pid in (agent.pid, *ranks):
            machine.link(str(pid), f"/proc/{pid}")
        found = machine.of(ranks[0])
        agent.stdin.close()

    assert found == ranks


def test_the_page_names_them_while_the_run_is_running(
    machine: Machine, folder: Path, watched: Watching
) -> None:
    log = folder / "ppo.jsonl"
    log.write_text(verl_json(1, measured(1)))
    machine.start(20, GPU, parent=SHELL)
    pretend(machine.proc, 20, log, "0100001", descriptor=9)
    run = watched(proc=machine.proc)
    for _ in range(4):
        run.look(2.0)
    found = run.look(20.0)

    (process,) = found.all("rl_run_gpu_process_info")
    assert dict(process) == {"run": "ppo", "pid": "20", "pid_namespace": "086fb401f216-4026531836"}
    assert {dict(labels)["uuid"] for labels in found.all("rl_run_node_gpu_info", run="ppo")} == set(UUIDS)
    machine.end(20)
    found = run.look(60.0)
    assert not found.all("rl_run_gpu_process_info")


def test_the_writer_of_any_of_a_runs_logs_reports_its_processes(
    machine: Machine, folder: Path, watched: Watching
) -> None:
    steps = [(step, measured(step)) for step in range(1, 13)]
    folder.joinpath("ppo.jsonl").write_text("".join(verl_json(*each) for each in steps))
    log = folder / "ppo.log"
    log.write_text("".join(console(*each) for each in steps))
    machine.start(20, GPU, parent=SHELL, group=20, session=SHELL)
    machine.start(21, parent=SHELL, group=20, session=SHELL, name="tee")
    pretend(machine.proc, 21, log, "0100001", descriptor=9)
    run = watched(proc=machine.proc)
    for _ in range(4):
        run.look(2.0)
    found = run.look(20.0)

    assert [dict(labels)["run"] for labels in found.all("rl_run_info")] == ["ppo"]
    assert found.value("rl_run_info", source="verl_jsonl") == 1
    assert found.value("rl_run_gpu_process_info", run="ppo", pid="20") == 1

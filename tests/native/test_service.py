"""`make up SERVICE=1`: a real systemd starts the stack after reboots and whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwatch.system.environment import CHECKOUT
from tests.native.installation import Installation, made, python_module
from tests.real.systemd import Machine
from tests.real.waiting import eventually, in_time

pytestmark = pytest.mark.e2e


@dataclass
class Inside(Installation):
    """An installation whose commands run in a machine of its own."""

    machine: Machine | None = None

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        assert self.machine
        environment = {**self.environment, "STEPWATCH_STATE": str(self.state), "PYTHONPATH": str(CHECKOUT)}
        return self.machine.run([sys.executable, "-m", "stepwatch", *words], environment)

    def service(self, property_: str) -> str:
        assert self.machine
        return self.machine.systemctl(
            "show", f"--property={property_}", "--value", "stepwatch"
        ).stdout.strip()

    def answers(self) -> bool:
        return self.run("status").returncode == 0


@pytest.fixture(name="inside", params=["system", pytest.param("user", marks=pytest.mark.world)])
def _inside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inside]:
    plain = made(tmp_path, "newest")
    with Machine(tmp_path / "machine", user=request.param == "user") as machine:
        yield Inside(plain.folder, plain.environment, plain.ports, machine)


def test_the_service_survives_kills_and_reboots_and_stays_down_when_taken_down(inside: Inside) -> None:
    machine = inside.machine
    assert machine
    done = inside.up("--service")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "systemd starts Stepwatch from now on" in done.stdout
    status = inside.run("status").stdout
    assert "Service: stepwatch.service is enabled and active" in status
    assert inside.service("ActiveState") == "active"

    _kill_supervisor(inside)
    _reboot(inside)
    done = inside.up()  # without SERVICE=1, as every day
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is enabled and active" in inside.run("status").stdout

    done = inside.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert inside.pids() == set()
    machine.crash()
    machine.boot()
    assert machine.systemctl("start", "stepwatch").returncode == 0  # as a boot does
    assert inside.pids() == set()
    assert inside.service("ActiveState") == "inactive"
    assert "Service: stepwatch.service is enabled and inactive" in inside.run("status").stdout

    assert inside.up().returncode == 0
    assert inside.service("ActiveState") == "active"
    done = inside.run("down", "--service")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Removed" in done.stdout
    assert machine.systemctl("is-enabled", "stepwatch").returncode != 0


def _kill_supervisor(inside: Inside) -> None:
    supervisors = [pid for pid in inside.pids() if python_module(pid) == "supervisor.supervisord"]
    before = inside.pids()
    os.kill(supervisors[0], signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: not before & inside.pids() and inside.answers())
    took = time.monotonic() - begun
    print(f"supervisord below systemd: {took:.1f} s")
    assert in_time(took, 15)
    assert "Restarts of all parts by systemd: 1, the last at " in inside.run("status").stdout


def _reboot(inside: Inside) -> None:
    assert inside.machine
    inside.machine.crash()
    assert inside.pids() == set()
    inside.machine.boot()
    eventually(inside.answers)


def test_a_stack_that_runs_already_moves_below_systemd(inside: Inside) -> None:
    assert inside.up().returncode == 0
    assert "Service: none" in inside.run("status").stdout

    done = inside.up("--service")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Stepwatch moves below systemd" in done.stdout
    assert inside.service("ActiveState") == "active"
    assert inside.run("status").returncode == 0
    other = Inside(inside.folder / "other", inside.environment, inside.ports, inside.machine)
    other.folder.mkdir()
    other.configure()
    assert inside.run("down").returncode == 0
    done = other.up("--service")
    assert done.returncode == 2
    assert f"runs the stack in {inside.state}" in done.stderr
    assert "Fix: " in done.stderr


def test_a_user_is_shown_how_to_let_the_service_outlive_logouts(tmp_path: Path) -> None:
    plain = made(tmp_path, "newest")
    with Machine(tmp_path / "machine", user=True) as machine:
        inside = Inside(plain.folder, plain.environment, plain.ports, machine)
        done = inside.up("--service")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Fix: sudo loginctl enable-linger " in done.stdout
        user = done.stdout.partition("enable-linger ")[2].split()[0]
        (machine.folder / "linger" / user).touch()

        assert f"Lingering is on for {user}" in inside.run("status").stdout


def test_a_machine_without_systemd_is_shown_what_to_do_instead(tmp_path: Path) -> None:
    installation = made(tmp_path, "newest")
    empty = tmp_path / "bin"
    empty.mkdir()
    installation.environment["PATH"] = str(empty)

    done = installation.up("--service")

    assert done.returncode == 2
    assert "`make up SERVICE=1`: no systemd" in done.stderr
    assert "Fix: " in done.stderr
    assert "Traceback" not in done.stderr
    assert installation.pids() == set()

"""Commands that change the stack at the same time: one after the other, and `down` has the last word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.deploy.native.state import State
from tests.native.conftest import StandInStack
from tests.native.installation import Installation, made
from tests.real.waiting import eventually

CHECKS = """#!/bin/sh
touch {folder}/checking
while [ ! -e {folder}/go ]; do sleep 0.1; done
"""
"""promtool, as far as `up` calls it: it takes its time, and `up` holds the lock meanwhile."""

DOCKER = """#!/bin/sh
case "$*" in
  *version*) echo 25.0.3 ;;
  *" ps "*) cat {folder}/containers 2>/dev/null || true ;;
  *" up "*)
    touch {folder}/checking
    while [ ! -e {folder}/go ]; do sleep 0.1; done
    echo '{container}' > {folder}/containers ;;
  *" down "*) rm -f {folder}/containers ;;
esac
"""
CONTAINER = '{"Service": "gpu", "ID": "1", "State": "running", "Health": "", "ExitCode": 0, "Status": "Up"}'


@pytest.fixture(name="installation")
def _installation(tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, "newest")
    yield installation
    (installation.folder / "go").touch()
    installation.run("down")


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def begun(installation: Installation, *words: str) -> subprocess.Popen[str]:
    """A command that goes on by itself."""
    environment = {**os.environ, **installation.environment, "STEPWATCH_STATE": str(installation.state)}
    command = [sys.executable, "-u", "-m", "stepwatch", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def starting(installation: Installation, *words: str) -> subprocess.Popen[str]:
    """An `up` that is in the middle of its changes, until the file `go` is there."""
    up = begun(installation, "up", "--config", str(installation.config), *words)
    eventually((installation.folder / "checking").exists)
    return up


def ended(command: subprocess.Popen[str]) -> str:
    words = command.communicate(timeout=300)[0]
    assert "Traceback" not in words
    return words


@pytest.mark.parametrize("containers", [False, True])
def test_down_waits_for_an_up_that_is_changing_the_stack_and_takes_it_down(
    installation: Installation, containers: bool
) -> None:
    folder = installation.folder
    words = ("--runs", str(folder / "runs"), *(() if containers else ("--native",)))
    if containers:
        (folder / "runs").mkdir()
        script(folder, "docker", DOCKER.format(folder=f"'{folder}'", container=CONTAINER))
        installation.environment.update(
            PATH=f"{folder}:{os.environ['PATH']}",
            STEPWATCH_EXPORTER_IMAGE="ours",
            STEPWATCH_PROMTOOL="/bin/true",
        )
    else:
        checks = CHECKS.format(folder=f"'{folder}'")
        installation.environment["STEPWATCH_PROMTOOL"] = script(folder, "checks", checks)
    up = starting(installation, *words)
    down = begun(installation, "down")
    assert down.stdout
    assert down.stdout.readline() == f"Waiting for `make up` (pid {up.pid}), which is changing the stack.\n"

    (folder / "go").touch()

    assert "Stepwatch is down." in ended(down)
    said = ended(up)
    assert containers or (up.returncode, "`make down` took the stack down meanwhile." in said) == (1, True)
    assert installation.pids() == set()
    assert not (folder / "containers").exists()


def test_a_command_that_was_killed_keeps_no_one_waiting(installation: Installation) -> None:
    checks = CHECKS.format(folder=f"'{installation.folder}'")
    installation.environment["STEPWATCH_PROMTOOL"] = script(installation.folder, "checks", checks)
    up = starting(installation, "--native", "--runs", str(installation.folder / "runs"))
    os.kill(up.pid, signal.SIGKILL)
    up.wait()

    done = installation.run("down")

    assert done.returncode == 0
    assert done.stdout == "Stepwatch is not running.\n"
    (installation.folder / "go").touch()
    up.communicate()


def test_two_ups_at_once_end_with_one_stack(stack: StandInStack) -> None:
    place, said = stack.place, []
    place.create()
    with place.lock("`make up`", said.append):
        second = State(place.folder)
        code = (
            "import sys; from pathlib import Path; from stepwatch.deploy.native.state import State\n"
            "with State(Path(sys.argv[1])).lock('`make up`', lambda line: print(line, flush=True)):\n"
            "    print('mine', flush=True)"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(second.folder)], stdout=subprocess.PIPE, text=True
        )
        assert other.stdout
        line = other.stdout.readline()
        assert line == f"Waiting for `make up` (pid {os.getpid()}), which is changing the stack.\n"
        assert other.poll() is None
    assert other.communicate(timeout=60)[0] == "mine\n"
    assert said == []
    assert not (place.folder / "changing").exists()

"""`make test-fast` starts no program, whatever a test or what it tests does to start one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stepwatch.system.environment import CHECKOUT

TESTS = """
import contextlib, os, subprocess, threading
import pytest

WAYS = {
    "subprocess": lambda: subprocess.run(["touch", "started"]),
    "spawn": lambda: os.spawnlp(os.P_WAIT, "touch", "touch", "started"),
    "posix_spawn": lambda: os.posix_spawnp("touch", ["touch", "started"], os.environ),
    "system": lambda: os.system("touch started"),
    "popen": lambda: os.popen("touch started"),
    "fork": lambda: os.fork() or os._exit(0),
}

@pytest.mark.parametrize("way", WAYS)
def test_program(way):
    WAYS[way]()

@pytest.fixture
def server():
    subprocess.run(["touch", "started"])

def test_fixture(server): ...

def test_refusal_that_is_caught():
    with contextlib.suppress(BaseException):
        WAYS["subprocess"]()
    raise AssertionError("it did not start")

@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread():
    thread = threading.Thread(target=WAYS["subprocess"])
    thread.start()
    thread.join()
    assert os.path.exists("started")

@pytest.mark.parametrize("case", range(3))
def test_long(case):
    while True: ...

def test_other(): ...

def test_that_fails():
    raise AssertionError
"""


def run(folder: Path, *words: str) -> dict[str, str]:
    """How each of these tests ended, by its name."""
    (folder / "test_these.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-vv",
        *words,
    ]
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "-c/dev/null"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines() if "::" in line and "%]" in line]
    return {line[0].partition("::")[2]: line[1] for line in lines}


def test_a_fast_test_starts_no_program_and_is_over_soon(tmp_path: Path) -> None:
    ended = run(tmp_path, "--fast", "test_these.py")

    assert not (tmp_path / "started").exists()
    assert ended.pop("test_other") == "PASSED"
    assert ended.pop("test_that_fails") == "FAILED"
    assert len(ended) == 12
    assert set(ended.values()) == {"SKIPPED"}


def test_other_runs_start_programs(tmp_path: Path) -> None:
    ended = run(tmp_path, *(f"test_these.py::test_{name}" for name in ("program", "fixture", "thread")))

    assert (tmp_path / "started").exists()
    assert len(ended) == 8
    assert set(ended.values()) == {"PASSED"}

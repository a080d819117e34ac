"""`make test-fast` starts no program, whatever a test or what it tests does to start one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from stepwatch.system.environment import CHECKOUT

TESTS = """
import contextlib, os, subprocess, threading, time
import pytest

def touch():
    subprocess.run(["touch", "started"])

def test_program(): touch()
def test_program_spawned(): os.spawnlp(os.P_WAIT, "touch", "touch", "started")
def test_program_posix_spawned(): os.posix_spawnp("touch", ["touch", "started"], os.environ)
def test_program_of_a_shell(): os.system("touch started")
def test_program_read(): os.popen("touch started")
def test_program_forked(): os.fork() or os._exit(0)

@pytest.fixture
def server():
    touch()

def test_fixture(server): ...

def test_refusal_that_is_caught():
    with contextlib.suppress(BaseException):
        touch()
    raise AssertionError("it did not start")

@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread():
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()
    assert os.path.exists("started")

@pytest.mark.parametrize("started", [True, False])
def test_case_of_a_program(started):
    if started:
        touch()

@pytest.mark.parametrize("case", range(2))
def test_cases(case):
    begun = time.process_time()
    while time.process_time() - begun < 0.7: ...

@pytest.mark.slow
def test_marked(): ...

def test_unmarked(monkeypatch):
    monkeypatch.setattr(time, "process_time", lambda: 1e9)

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
    return dict(re.findall(r"^test_these\.py::(\S+) (PASSED|FAILED|SKIPPED)", done.stdout, re.MULTILINE))


def test_a_fast_test_starts_no_program_and_takes_seconds(tmp_path: Path) -> None:
    ended = run(tmp_path, "--fast", "test_these.py")

    assert not (tmp_path / "started").exists()
    passed, failed = {"test_cases[0]", "test_other"}, {"test_unmarked", "test_that_fails"}
    assert {name for name, how in ended.items() if how == "PASSED"} == passed
    assert {name for name, how in ended.items() if how == "FAILED"} == failed
    assert {name for name, how in ended.items() if how == "SKIPPED"} == ended.keys() - passed - failed
    assert len(ended) == 16
    assert "test_marked" not in ended


def test_other_runs_start_programs(tmp_path: Path) -> None:
    ended = run(tmp_path, *(f"test_these.py::test_{name}" for name in ("program", "fixture", "thread")))

    assert (tmp_path / "started").exists()
    assert ended == dict.fromkeys(["test_program", "test_fixture", "test_thread"], "PASSED")

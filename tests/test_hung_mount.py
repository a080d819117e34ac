"""The stand-in for a file server that died: other tests rely on what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.hung_mount import Mount, mounted
from tests.real.waiting import eventually

CALLS = (
    "os.stat(path)",
    "open(path).read()",
    "os.scandir(os.path.dirname(path))",
    "os.access(path, os.R_OK)",
)


@pytest.fixture
def mount(tmp_path):
    with mounted(tmp_path / "mount") as made:
        (made.behind / "log").write_text("one\n")
        yield made


def waits_in_kernel(process: subprocess.Popen) -> bool:
    """Is it in a call of the file system that no one answers?"""
    return Path(f"/proc/{process.pid}/wchan").read_text() == "request_wait_answer"


@pytest.mark.parametrize("call", CALLS)
def test_calls_wait_while_it_hangs_and_end_when_it_comes_back(mount: Mount, call: str) -> None:
    assert (mount.folder / "log").read_text() == "one\n"
    mount.hang()
    code = f"import os, sys; path = sys.argv[1]; {call}"
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, str(mount.folder / "log")])
    eventually(lambda: waits_in_kernel(process))
    mount.come_back()
    assert process.wait(60) == 0


def test_no_process_is_left_waiting_at_the_end(tmp_path: Path) -> None:
    with mounted(tmp_path / "mount") as mount:
        (mount.behind / "log").write_text("one\n")
        mount.hang()
        process = subprocess.Popen(["cat", str(mount.folder / "log")], stderr=subprocess.DEVNULL)
        eventually(lambda: waits_in_kernel(process))
    assert process.wait(60) == 1
    assert not list((tmp_path / "mount").iterdir())

"""Whether the kernel killed a trainer for lack of memory: by its cgroup, and a kernel that does so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.files import launch
from tests.real.waiting import eventually

BYTES = 200 << 20
"""The wrapper and its keeper need a fifth of it."""
HOG = """
held = []
while True:
    held.append(bytearray(1 << 20))
"""
ROOT = Path("/sys/fs/cgroup")
FILES = {
    ROOT / "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(BYTES)),
    ROOT: ("memory.max", "memory.swap.max", "0"),
}
"""By the root of the memory controller, of version 1 and 2: its limit, and what keeps it from the swap."""


@pytest.fixture(name="cgroup")
def _cgroup() -> Iterator[Path]:
    """A cgroup of little memory."""
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    root = next((each for each in FILES if (each / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("there are no cgroups")
    limit, swap, most = FILES[root]
    folder = root / f"stepwatch-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no cgroup can be made: {problem.strerror}")
    try:
        if not (folder / limit).exists():
            pytest.skip(f"cgroups below {root} do not limit memory")
        (folder / limit).write_text(str(BYTES))
        with suppress(OSError):  # without swap there is nothing to limit
            (folder / swap).write_text(most)
        yield folder
    finally:
        eventually(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def inside(cgroup: Path, *command: str) -> list[str]:
    return ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", *command]


def wrapped(runs: Path, *command: str) -> list[str]:
    return [sys.executable, "-m", "stepwatch", "run", "--runs", str(runs), "--name", "a", "--", *command]


def end(runs: Path) -> tuple[str, bool]:
    """The cause of a run's end, and whether the kernel killed anything meanwhile."""
    found = launch.read(runs / "a.log")
    assert found is not None
    return found.cause, bool(found.oom_kills)


def test_a_trainer_that_the_kernel_killed_is_out_of_memory_and_one_that_someone_killed_is_not(
    tmp_path: Path, cgroup: Path
) -> None:
    killed = subprocess.run(inside(cgroup, *wrapped(tmp_path, sys.executable, "-c", HOG)), check=False)
    assert (killed.returncode, end(tmp_path)) == (-9, ("out of memory", True))

    killed = subprocess.run(inside(cgroup, *wrapped(tmp_path, "sh", "-c", "kill -9 $$")), check=False)
    assert (killed.returncode, end(tmp_path)) == (-9, ("SIGKILL", False))


def test_where_its_cgroup_is_not_known_what_the_kernel_killed_elsewhere_is_not_taken_for_the_trainer(
    tmp_path: Path, cgroup: Path
) -> None:
    trainer = f"touch {tmp_path}/runs; until [ -e {tmp_path}/elsewhere ]; do sleep 0.05; done; kill -9 $$"
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh")
    process = subprocess.Popen([*hidden, *wrapped(tmp_path, "sh", "-c", trainer)])
    eventually((tmp_path / "runs").exists)
    assert subprocess.run(inside(cgroup, sys.executable, "-c", HOG), check=False).returncode == -9
    (tmp_path / "elsewhere").touch()

    assert process.wait(60) == -9
    assert end(tmp_path) == ("SIGKILL", False)

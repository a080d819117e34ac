"""How a trainer failed: failure classes, on what real programs print, and a kernel that kills for memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.files import launch
from stepwatch.schema.failures import TAIL_BYTES, classify
from tests.public_logs import folders
from tests.real.waiting import eventually

LOGS = Path(__file__).parents[1] / "logs"

HANGS_UP = """
import http.client as h, socket as s, threading as t
l = s.create_server(("127.0.0.1", 0)); t.Thread(target=lambda: l.accept()[0].close()).start()
c = h.HTTPConnection(*l.getsockname()); c.request("GET", "/"); c.getresponse()
"""
CAUGHT = """
import traceback
try:
    raise ConnectionError("x")
except ConnectionError:
    traceback.print_exc()
assert 0
"""
CHAIN = """
try:
    {}["x"]
except KeyError as e:
    raise ConnectionResetError("peer") from e
"""
PROGRAMS = {
    "bytearray(1 << 60)": "host_oom",
    "import os; raise OSError(12, os.strerror(12))": "host_oom",
    "print(1, file=open('/dev/full', 'w'), flush=True)": "disk_full",
    "import os; raise OSError(122, os.strerror(122), 'model.pt')": "disk_full",
    "import urllib.request as u; u.urlopen('http://127.0.0.1:1')": "network",
    "import socket; socket.getaddrinfo('nowhere.invalid', 80)": "network",
    HANGS_UP: "network",
    "import os; raise OSError(113, os.strerror(113))": "network",
    "assert 1 == 2, 'shapes differ'": "assertion",
    "assert 1 == 2": "assertion",
    CHAIN: "network",
    CAUGHT: "assertion",
    "{}['ConnectionError: x']": None,
    "print('ask: what does MemoryError: mean? CUDA out of memory.'); exit(1)": None,
    "import sys; sys.exit('WARNING x: MaxRetryError() thrown, Retrying [1/5]')": None,
}


@pytest.mark.parametrize("code", PROGRAMS)
def test_the_class_of_a_program_that_fails_for_real(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=-1, stderr=subprocess.STDOUT, cwd=tmp_path, check=False
    )
    assert done.returncode != 0

    found = classify(done.stdout)
    assert (found and found.name) == PROGRAMS[code]


# As issues of the projects quote them.
MESSAGES = """
nccl_timeout|[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=98015, Timeout(ms)=600000) ran for 600020 \
milliseconds before timing out.
host_oom|ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
host_oom|RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.
preemption|slurmstepd: error: *** JOB 32 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO PREEMPTION ***
|slurmstepd: error: *** JOB 32 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO TIME LIMIT ***
cuda_oom|\x1b[36m(WorkerDict pid=3212)\x1b[0m torch.OutOfMemoryError: CUDA out of memory. Tried to
cuda_oom|[rank0]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB.
cuda_oom|ERROR:trainer:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB.
host_oom|(raylet, ip=10.0.0.7) MemoryError: std::bad_alloc
cuda_oom|RuntimeError: CUDA error: out of memory
cuda_oom|RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
network|requests.exceptions.ConnectionError: (MaxRetryError("HTTPSConnectionPool(host='huggingface.co'
network|huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable for url: https://x
|huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized for url: https://x
assertion|RuntimeError: CUDA error: device-side assert triggered
assertion|../aten/src/ATen/native/cuda/Loss.cu:242: nll_loss: block: [0,0,0] Assertion `t < n_classes` failed.
|RuntimeError: CUDA error: an illegal memory access was encountered
|Killed
"""


@pytest.mark.parametrize("message", MESSAGES.strip().splitlines())
def test_the_class_of_a_message(message: str) -> None:
    name, _, line = message.partition("|")
    found = classify(f"step 1\n{line}\n  5%|     | 1/20\r".encode())

    assert (found.name if found else "") == name


def test_what_fails_on_one_rank_explains_what_the_others_say_and_only_the_end_counts() -> None:
    lines = [
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
        "[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer",
        "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: Work",
    ]
    for output in (lines, lines[::-1]):
        found = classify("\n".join(output).encode())
        assert found
        assert found.name == "cuda_oom"
    assert classify(b"ConnectionError: x\n" + b"step\n" * 300) is None


def test_logs_of_trainers_that_failed_and_healthy_ones_hold_no_other_failure() -> None:
    own = {log: classify((LOGS / log).read_bytes()) for log in ("trl/failed.log", "verl/failed.log")}
    assert [each and each.name for each in own.values()] == ["network", None]
    logs = [path for folder in folders() for path in folder.rglob("*") if path.suffix in (".log", ".txt")]
    if not logs:
        pytest.skip("the labelled public logs are not here")
    found = {path.stem: classify(path.read_bytes()[-TAIL_BYTES:]) for path in logs}

    # It ran out of disk while it saved step 150: torch's writer failed.
    assert {name: each.name for name, each in found.items() if each} == {
        "searchr1_grpo_part1_steps0-149": "disk_full"
    }


# For lack of memory

HOG = "held = []\nwhile True: held.append(bytearray(1 << 20))"
ROOT = Path("/sys/fs/cgroup")
FILES = {
    ROOT / "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(200 << 20)),
    ROOT: ("memory.max", "memory.swap.max", "0"),
}
"""By the root of the memory controller, of version 1 and 2: its limit, and what keeps it from the swap."""


@pytest.fixture(name="cgroup")
def _cgroup() -> Iterator[Path]:
    """A cgroup of 200 MiB, of which the wrapper needs a fifth."""
    root = next((each for each in FILES if (each / "cgroup.procs").exists()), None)
    if os.geteuid() != 0 or root is None:
        pytest.skip("only root makes cgroups, where there are any")
    limit, swap, most = FILES[root]
    folder = root / f"stepwatch-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no cgroup can be made: {problem.strerror}")
    try:
        if not (folder / limit).exists():
            pytest.skip(f"cgroups below {root} do not limit memory")
        (folder / limit).write_text(str(200 << 20))
        with suppress(OSError):  # without swap there is nothing to limit
            (folder / swap).write_text(most)
        yield folder
    finally:
        eventually(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_a_trainer_that_the_kernel_killed_is_out_of_memory_and_one_that_someone_killed_is_not(
    tmp_path: Path, cgroup: Path
) -> None:
    run = [sys.executable, "-m", "stepwatch", "run", "--runs", str(tmp_path), "--name", "a", "--"]
    inside = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", *run]
    found = []
    for trainer in ([sys.executable, "-c", HOG], ["sh", "-c", "kill -9 $$"]):
        assert subprocess.run([*inside, *trainer], check=False).returncode == -9
        last = launch.read(tmp_path / "a.log")
        assert last
        found.append((last.cause, bool(last.oom_kills)))

    assert found == [("out of memory", True), ("SIGKILL", False)]
    assert [each and each.name for each in (
        classify(b"  exitcode  : -9 (pid: 17)\n", oom_kills=1), classify(b"ValueError: x\n", oom_kills=1)
    )] == ["host_oom", None]  # fmt: skip

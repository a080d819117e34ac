"""Failure classes, on what real programs print when they fail and on logs of runs that did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepwatch.schema.failures import TAIL_BYTES, classify
from tests.public_logs import folders

LOGS = Path(__file__).parents[1] / "logs"

OOM = """
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "{module}"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a capacity of 79 GiB.")
"""
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
    "torch since 2.5": (OOM.replace("{module}", "torch"), "cuda_oom"),
    "torch before 2.5": (OOM.replace("{module}", "torch.cuda"), "cuda_oom"),
    "the driver": ("raise RuntimeError('CUDA error: out of memory')", "cuda_oom"),
    "cuBLAS": (
        "raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')",
        "cuda_oom",
    ),
    "Python": ("bytearray(1 << 60)", "host_oom"),
    "a process that cannot fork": ("import os; raise OSError(12, os.strerror(12))", "host_oom"),
    "a full disk": ("print(1, file=open('/dev/full', 'w'), flush=True)", "disk_full"),
    "a quota": ("import os; raise OSError(122, os.strerror(122), 'model.pt')", "disk_full"),
    "a server that is down": ("import urllib.request as u; u.urlopen('http://127.0.0.1:1')", "network"),
    "a name that no server knows": ("import socket; socket.getaddrinfo('nowhere.invalid', 80)", "network"),
    "a server that hangs up": (HANGS_UP, "network"),
    "an address without a route": ("import os; raise OSError(113, os.strerror(113))", "network"),
    "an assertion": ("assert 1 == 2, 'shapes differ'", "assertion"),
    "an assertion without words": ("assert 1 == 2", "assertion"),
    "a chain of exceptions": (CHAIN, "network"),
    "a bug": ("{}['ConnectionError: x']", None),
    "a word in a sample": ("print('ask: what does MemoryError: mean? CUDA out of memory.'); exit(1)", None),
    "an error of a logger": (
        "import sys; sys.exit('WARNING x: MaxRetryError() thrown, Retrying [1/5]')",
        None,
    ),
    "an error that was caught": (CAUGHT, "assertion"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_class_of_a_program_that_fails_for_real(name: str, tmp_path: Path) -> None:
    code, expected = PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode != 0

    found = classify(done.stdout)
    assert (found and found.name) == expected


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
cuda_oom|[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB.
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


def test_what_fails_on_one_rank_explains_what_the_others_say() -> None:
    lines = [
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
        "[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer",
        "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: Work",
    ]
    for output in (lines, lines[::-1]):
        found = classify("\n".join(output).encode())
        assert (found and found.name) == "cuda_oom"


@pytest.mark.parametrize(
    ("killed", "kills", "output", "expected"),
    [
        (True, 1, b"", "host_oom"),
        (True, 0, b"", None),
        (False, 1, b"  exitcode  : -9 (pid: 17)\n", "host_oom"),
        (False, 1, b"ValueError: x\n", None),
    ],
)
def test_what_the_kernel_killed_for_lack_of_memory(
    killed: bool, kills: int, output: bytes, expected: str | None
) -> None:
    found = classify(output, killed=killed, oom_kills=kills)

    assert (found and found.name) == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [("trl/failed.log", "network"), ("trl/failed_before_step_1.log", "network"), ("verl/failed.log", None)],
)
def test_logs_of_real_trainers_that_failed(log: str, expected: str | None) -> None:
    found = classify((LOGS / log).read_bytes())

    assert (found and found.name) == expected


def test_healthy_and_sick_logs_hold_no_failure_but_those_that_crashed() -> None:
    logs = [path for folder in folders() for path in folder.rglob("*") if path.suffix in (".log", ".txt")]
    if not logs:
        pytest.skip("the labelled public logs are not here")
    found = {path.stem: classify(path.read_bytes()[-TAIL_BYTES:]) for path in logs}

    # It ran out of disk while it saved step 150: torch's writer failed.
    assert {name: each.name for name, each in found.items() if each} == {
        "searchr1_grpo_part1_steps0-149": "disk_full"
    }


def test_only_the_end_counts() -> None:
    early = b"ConnectionError: x\n" + b"step\n" * 300

    assert classify(early) is None

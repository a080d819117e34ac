"""The failure classes of trainers, each with what programs print that fail in this way."""

from __future__ import annotations

import re
from typing import NamedTuple

from exporter.runs.formats.prefixes import Prefixes

TAIL_BYTES, TAIL_LINES = 65536, 200
"""The end of the output that is searched."""

_START = r"^(?:E\s{2,}|\s+what\(\):\s+)*"  # pytest's, and "terminate called ... what():  "


def _raised(names: str) -> str:
    """The last line of a traceback, whatever module the exceptions are from."""
    return rf"{_START}(?:[A-Za-z_][\w]*\.)*(?:{'|'.join(names.split())})(?::|\s*$)"


class Failure(NamedTuple):
    """A failure class: its ``name`` in config.yaml, the ``text`` that users see, expressions of its signs."""

    name: str
    text: str
    signs: tuple[str, ...]


FAILURES = (
    Failure("preemption", "preempted", (
        r"slurmstepd: error: .*CANCELLED .*DUE TO PREEMPTION",  # Slurm
        r"\bray\.exceptions\.NodeDiedError\b.*\bpreempted\b",  # Ray: a node that its provider takes back
    )),
    Failure("cuda_oom", "CUDA out of memory", (
        # PyTorch (before 2.5 torch.cuda.OutOfMemoryError), ROCm's build.
        _raised("OutOfMemoryError RuntimeError AcceleratorError") + r"\s*CUDA out of memory\.",
        _raised("OutOfMemoryError") + r"\s*HIP out of memory\.",
        # The driver, by way of torch or vLLM; cuBLAS and NCCL likewise.
        _raised("RuntimeError AcceleratorError DistBackendError OutOfMemoryError")
        + r".*\b(?:CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure 2 'out of memory')",
    )),
    Failure("host_oom", "out of memory", (
        _raised("MemoryError ArrayMemoryError"),  # Python, NumPy
        _raised("OSError") + r"\s*\[Errno 12\] Cannot allocate memory",
        r"RuntimeError: .*DefaultCPUAllocator: can't allocate memory",  # PyTorch on the host
        r"RuntimeError: DataLoader worker \(pid.*\) is killed by signal: Killed",
        r"\bray\.exceptions\.OutOfMemoryError: |killed due to the node running low on memory",  # Ray
        r"std::bad_alloc",
    )),
    Failure("disk_full", "disk full", (
        r"\[Errno 28\] No space left on device|\[Errno 122\] Disk quota exceeded",
        r"No space left on device \(os error 28\)|kind: StorageFull",  # Rust: safetensors, tokenizers
        # torch.save on a full disk: its writer fails, and then the end of its archive is not where it was.
        r"RuntimeError: .*(?:basic_ios::clear: iostream error|PytorchStreamWriter failed writing file)",
        r"inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",
        r"\bOutOfDiskError\b",  # Ray
    )),
    Failure("nccl_timeout", "NCCL timeout", (  # PyTorch, ProcessGroupNCCL.cpp
        r"Watchdog caught collective operation timeout",
        r"WorkNCCL\(.*ran for \d+ milliseconds before timing out",
        r"ProcessGroupNCCL.*\bHeartbeatMonitor\b.*\btimed? ?out\b",
    )),
    Failure("network", "network error", (
        _raised(  # of Python, urllib3, requests, httpx, OpenAI's client, aiohttp, torch, huggingface_hub
            "ConnectionError ConnectionResetError ConnectionRefusedError ConnectionAbortedError gaierror "
            "timeout BrokenPipeError TimeoutError URLError RemoteDisconnected IncompleteRead "
            "MaxRetryError NewConnectionError NameResolutionError ProtocolError ReadTimeoutError "
            "ConnectTimeoutError ConnectTimeout ReadTimeout ChunkedEncodingError ProxyError ConnectError "
            "ReadError RemoteProtocolError PoolTimeout APIConnectionError APITimeoutError "
            "ClientConnectorError ServerDisconnectedError ClientOSError ServerTimeoutError "
            "DistNetworkError LocalEntryNotFoundError"
        ),
        _raised("OSError") + r"\s*\[Errno (?:101|103|104|110|111|113)\]",
        _raised("HfHubHTTPError HTTPError") + r".*\b(?:429|50[0234])\b",
        r"RuntimeError: .*(?:Connection reset by peer|Connection closed by peer|NCCL error.*remote process)",
    )),
    Failure("assertion", "assertion failed", (
        _raised("AssertionError"),
        r"CUDA error: device-side assert triggered|\bAssertion `.*['`] failed",  # CUDA; C
    )),
)  # fmt: skip
"""An earlier class explains the later ones: memory fails on one rank, and the others report broken
connections. Of the last two the one that is printed last counts: an error that was caught caused nothing."""

CLASSES = {each.name: each for each in FAILURES}
_ANY_ORDER = ("network", "assertion")
_SIGNS = {each.name: re.compile("|".join(f"(?:{sign})" for sign in each.signs)) for each in FAILURES}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_KILLED = re.compile(r"exitcode\s*:\s*-9\b|Signal 9 \(SIGKILL\)|\(exitcode: -9\)")


def classify(output: bytes, *, killed: bool = False, oom_kills: int = 0) -> Failure | None:
    """Return the class of a failure, by the end of the output; ``killed``: SIGKILL ended the trainer.

    ``oom_kills`` are processes that the kernel killed meanwhile for lack of memory.
    """
    tail = output[-TAIL_BYTES:].replace(b"\r", b"\n").splitlines()[-TAIL_LINES:]
    lines = [_ANSI.sub("", line.decode(errors="replace")) for line in Prefixes().strip(tail)]
    if oom_kills and (killed or any(map(_KILLED.search, lines))):
        return CLASSES["host_oom"]
    last = {
        failure.name: max(
            (at for at, line in enumerate(lines) if _SIGNS[failure.name].search(line)), default=-1
        )
        for failure in FAILURES
    }
    first = next((name for name in CLASSES if name not in _ANY_ORDER and last[name] >= 0), None)
    name = first or max(_ANY_ORDER, key=last.__getitem__)
    return CLASSES[name] if last[name] >= 0 else None

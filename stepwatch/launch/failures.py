"""How a trainer ended: by exit code or signal, for lack of memory, and by which failure class."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_COUNTERS = {
    "cgroup2": ("memory.events", "/sys/fs/cgroup"),
    "cgroup": ("memory.oom_control", "/sys/fs/cgroup/memory"),
}


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt: the wait status, and the processes that the kernel killed for lack of memory."""

    status: int
    oom_kills: int = 0

    @property
    def exit_code(self) -> int | None:
        """What it exited with; ``None`` if a signal ended it."""
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> int:
        """The signal that ended it; 0 if it exited."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def signal_name(self) -> str:
        """The name of that signal; empty if it exited."""
        return signal.Signals(self.signal).name if self.signal else ""

    @property
    def text(self) -> str:
        """Exit code or signal in words."""
        return self.signal_name or f"exit code {self.exit_code}"

    def fields(self) -> dict[str, object]:
        """What the launch record says of it."""
        return {"exit_code": self.exit_code, "signal": self.signal_name, "oom_kills": self.oom_kills}


def oom_kills() -> int:
    """Return how many processes of our cgroup the kernel killed for lack of memory; 0 in the root cgroup."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, below = line.split(":", 2)
            kind = "cgroup" if "memory" in controllers.split(",") else "" if controllers else "cgroup2"
            if not kind:
                continue
            name, root = _COUNTERS[kind]
            # In a container the path is often the host's, and the files lie at the root.
            for path in (f"{root}{below.rstrip('/')}/{name}", f"{root}/{name}"):
                with suppress(OSError):
                    found = re.search(r"^oom_kill (\d+)$", Path(path).read_text("utf-8"), re.MULTILINE)
                    if found:
                        return int(found[1])
    return 0


TAIL_BYTES = 65536
"""Of the output are looked at; at most this many of its lines:"""
TAIL_LINES = 200


@dataclass(frozen=True)
class Failure:
    """A failure class: its ``name`` in config.yaml, and the ``text`` that users see."""

    name: str
    text: str


CUDA_OOM = Failure("cuda_oom", "CUDA out of memory")
HOST_OOM = Failure("host_oom", "out of memory")
DISK_FULL = Failure("disk_full", "disk full")
PREEMPTION = Failure("preemption", "preempted")
NCCL_TIMEOUT = Failure("nccl_timeout", "NCCL timeout")
NETWORK = Failure("network", "network error")
ASSERTION = Failure("assertion", "assertion failed")

# What stands before an exception: `[rank0]: `, `(WorkerDict pid=3212) `, `2025-11-23T17:32:12.08Z `,
# `ray.exceptions.RayTaskError(...): `, "terminate called ... what():  ".
_START = r"^(?:\[rank\d+\]:\s*|\([\w :.=,-]+\)\s*|\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\s+|E\s{2,}|\s+what\(\):\s+)*"


def _raised(*names: str) -> str:
    """The last line of a traceback, whatever module the exception is from."""
    return rf"{_START}(?:[A-Za-z_][\w]*\.)*(?:{'|'.join(names)})(?::|\s*$)"


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in alternatives))


_CAUSES = (
    # What takes the machine away says so in as many words, and all else follows from it.
    (PREEMPTION, _pattern(
        r"slurmstepd: error: .*CANCELLED .*DUE TO PREEMPTION",  # Slurm
        r"\bray\.exceptions\.NodeDiedError\b.*\bpreempted\b",  # Ray: a node that its provider takes back
    )),
    # Memory and disks fail on one rank; the others then report broken connections and timeouts.
    (CUDA_OOM, _pattern(
        # PyTorch, c10/cuda/CUDACachingAllocator.cpp: `torch.OutOfMemoryError: CUDA out of memory. Tried to
        # allocate 2.00 GiB. GPU 0 has a total capacity of ...`; before 2.5 torch.cuda.OutOfMemoryError.
        _raised("OutOfMemoryError", "RuntimeError", "AcceleratorError") + r"\s*CUDA out of memory\.",
        # The driver, by way of torch or vLLM: `CUDA error: out of memory`; cuBLAS and NCCL likewise.
        _raised("RuntimeError", "AcceleratorError", "DistBackendError", "OutOfMemoryError")
        + r".*\b(?:CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure 2 'out of memory')",
        # ROCm's build of PyTorch.
        _raised("OutOfMemoryError") + r"\s*HIP out of memory\.",
    )),
    (HOST_OOM, _pattern(
        _raised("MemoryError", "ArrayMemoryError"),  # Python, NumPy
        r"RuntimeError: .*DefaultCPUAllocator: can't allocate memory",  # PyTorch on the host
        _raised("OSError") + r"\s*\[Errno 12\] Cannot allocate memory",
        # Ray's memory monitor: `Task was killed due to the node running low on memory.`
        r"\bray\.exceptions\.OutOfMemoryError: ",
        r"killed due to the node running low on memory",
        r"RuntimeError: DataLoader worker \(pid.*\) is killed by signal: Killed",  # PyTorch
        r"std::bad_alloc",
    )),
    (DISK_FULL, _pattern(
        r"\[Errno 28\] No space left on device",
        r"\[Errno 122\] Disk quota exceeded",
        r"No space left on device \(os error 28\)|kind: StorageFull",  # Rust: safetensors, tokenizers
        # torch.save on a full disk: its writer fails, and then the end of its archive is not where it was.
        r"RuntimeError: .*basic_ios::clear: iostream error",
        r"RuntimeError: .*PytorchStreamWriter failed writing file",
        r"inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",
        r"\bOutOfDiskError\b",  # Ray
    )),
    (NCCL_TIMEOUT, _pattern(
        # PyTorch, ProcessGroupNCCL.cpp: `[Rank 1] Watchdog caught collective operation timeout:
        # WorkNCCL(SeqNum=808, OpType=ALLREDUCE, ...) ran for 600020 milliseconds before timing out.`
        r"Watchdog caught collective operation timeout",
        r"WorkNCCL\(.*ran for \d+ milliseconds before timing out",
        r"ProcessGroupNCCL.*\bHeartbeatMonitor\b.*\btimed? ?out\b",
    )),
)  # fmt: skip
"""Of those that are found, the first is the cause."""

_LAST = (
    (NETWORK, _pattern(
        _raised(
            "ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError",
            "BrokenPipeError", "TimeoutError", "gaierror", "timeout", "URLError", "RemoteDisconnected",
            "IncompleteRead",  # Python
            "MaxRetryError", "NewConnectionError", "NameResolutionError", "ProtocolError",
            "ReadTimeoutError", "ConnectTimeoutError",  # urllib3
            "ConnectTimeout", "ReadTimeout", "ChunkedEncodingError", "ProxyError",  # requests, httpx
            "ConnectError", "ReadError", "RemoteProtocolError", "PoolTimeout", "APIConnectionError",
            "APITimeoutError",  # httpx, OpenAI's client
            "ClientConnectorError", "ServerDisconnectedError", "ClientOSError",
            "ServerTimeoutError",  # aiohttp
            "DistNetworkError", "LocalEntryNotFoundError",  # torch.distributed's store, huggingface_hub
        ),
        _raised("OSError") + r"\s*\[Errno (?:101|103|104|110|111|113)\]",
        _raised("HfHubHTTPError", "HTTPError") + r".*\b(?:429|50[0234])\b",
        r"RuntimeError: .*(?:Connection reset by peer|Connection closed by peer|NCCL error.*remote process)",
    )),
    (ASSERTION, _pattern(
        _raised("AssertionError"),
        r"CUDA error: device-side assert triggered",
        r"\bAssertion `.*['`] failed",  # C, CUDA
    )),
)  # fmt: skip
"""Of those, the one that is found last: an error that the trainer caught before caused nothing."""

CLASSES = {failure.name: failure for failure, _ in (*_CAUSES, *_LAST)}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_KILLED = re.compile(r"exitcode\s*:\s*-9\b|Signal 9 \(SIGKILL\)|\(exitcode: -9\)")


def classify(output: bytes, outcome: Outcome) -> Failure | None:
    """Return the class of a failure, by the end of what the trainer wrote; ``None`` if it fits none."""
    text = _ANSI.sub("", output[-TAIL_BYTES:].decode(errors="replace")).replace("\r", "\n")
    lines = text.splitlines()[-TAIL_LINES:]
    killed = outcome.signal == 9 or any(map(_KILLED.search, lines))
    if outcome.oom_kills and killed:
        return HOST_OOM
    for failure, pattern in _CAUSES:
        if any(map(pattern.search, lines)):
            return failure
    for line in reversed(lines):
        for failure, pattern in _LAST:
            if pattern.search(line):
                return failure
    return None

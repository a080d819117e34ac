"""What benchmarks share: tables, times, what processes take, the run exporter measured from outside."""

from __future__ import annotations

import functools
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.real import Server, free_port

ROOT = Path(__file__).parents[1]
SHARE_SECONDS = 60.0


def table(
    *columns: str,
) -> Callable[[Callable[..., Iterator[Sequence[object]]]], Callable[..., Iterator[str]]]:
    """Decorate a generator of rows: it yields the lines of a Markdown table."""

    def decorate(rows: Callable[..., Iterator[Sequence[object]]]) -> Callable[..., Iterator[str]]:
        @functools.wraps(rows)
        def lines(*args: Any) -> Iterator[str]:
            yield f"| {' | '.join(columns)} |"
            yield "|---" * len(columns) + "|"
            for row in rows(*args):
                yield f"| {' | '.join(map(str, row))} |"

        return lines

    return decorate


def seconds(action: Callable[..., object], *args: object) -> float:
    """Wall time of a call."""
    began = time.perf_counter()
    action(*args)
    return time.perf_counter() - began


def quantiles(values: Sequence[float], *shares: float) -> list[float]:
    """The values at these shares (0 to 1) of all."""
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in shares]


def get(url: str) -> bytes:
    """A page, on a new connection."""
    host, _, path = url.removeprefix("http://").partition("/")
    with closing(http.client.HTTPConnection(host, timeout=60)) as connection:
        connection.request("GET", f"/{path}")
        return connection.getresponse().read()


def samples(page: bytes) -> int:
    return sum(not line.startswith(b"#") for line in page.splitlines())


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(child for name in children for child in family(int(name)))]


def memory(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of a process in MB, with ``VmHWM`` the most it has had."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


def proportional(pid: int) -> float:
    """Memory of a process in MB, its share of what it shares with others."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def shares(*pids: int, meanwhile: Callable[[], object] = lambda: time.sleep(SHARE_SECONDS)) -> list[float]:
    """Share of a core that each process and its children used in the meantime."""
    used, began = [_core_seconds(pid) for pid in pids], time.perf_counter()
    meanwhile()
    passed = time.perf_counter() - began
    return [(_core_seconds(pid) - before) / passed for pid, before in zip(pids, used, strict=True)]


def _core_seconds(pid: int) -> float:
    stats = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(pid)]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


@contextmanager
def python(code: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run this code in a process of its own, such as a naive loop to compare with."""
    with subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class RunExporter(Server):
    """The exporter of one folder, up while the ``with`` block runs; ``flags`` are more of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.address = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "exporter.runs", f"--path={folder}", f"--port={port}", *flags]
        super().__init__(command, f"{self.address}/-/healthy", cwd=ROOT)

    def page(self, path: str = "/metrics") -> bytes:
        return get(f"{self.address}{path}")

    def wait_for(self, text: bytes) -> None:
        """Wait until the text is on the metrics page."""
        while text not in self.page():
            time.sleep(0.01)

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs are running."""
        self.wait_for(b'stepwatch_runs{state="running"} %d' % count)

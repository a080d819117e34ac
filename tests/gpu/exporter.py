"""The exporter as a real process."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from stepwatch.system import http_client
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS, in_time, recent_slowness
from tests.records import split
from tests.runs.scrape import Scrape, until

ROOT = Path(__file__).parents[2]
QUICK = ("--interval=0.2", "--retry=0.3")
PACE = r"^(--interval|--retry)=([\d.]*[1-9][\d.]*)$"


def paced(flags: Iterable[str], slow: float) -> list[str]:
    """The flags, with so many times longer paces: a busy machine misses no reading that is due."""
    return [re.sub(PACE, lambda found: f"{found[1]}={float(found[2]) * slow:.3f}", flag) for flag in flags]


class Exporter:
    """Started at once, on a port of its own unless the flags name one; reads as often as this machine can."""

    def __init__(self, *flags: str, environment: Mapping[str, str] | None = None, **variables: str) -> None:
        self.port = free_port()
        ours = {key: value for key, value in (environment or os.environ).items() if "STEPWATCH" not in key}
        self.slow = recent_slowness()
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "exporter.gpu", f"--port={self.port}", *paced(flags, self.slow)],
            cwd=ROOT,
            env={**ours, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self, page: str = "/metrics") -> str:
        return f"http://127.0.0.1:{self.port}{page}"

    def scrape(self) -> Scrape:
        return Scrape((http_client.read(self.url()) or "").encode())

    def ask(self, page: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and text of a page."""
        request = urllib.request.Request(self.url(page), method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def until(self, true: Callable[[Scrape], object]) -> Scrape:
        """Scrape until it is true; fails after very many scrapes, or when the exporter ends."""
        return until(self.scrape, true, self.process)

    def devices(self) -> list[str]:
        """Files of the driver that it has open."""
        found = []
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(link.readlink()))
        return [name for name in found if "/nvidia" in name]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """As ``ended``, after a signal."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str, str]:
        """Exit code, and what it logged: information on GPUs included, and what went wrong."""
        out, log = self.process.communicate(timeout=HANG_SECONDS)
        assert out == ""
        return self.process.returncode, *split(log, "exporter.gpu.gpus")


Starting = Callable[..., Exporter]
"""Of the fixture ``start``."""


@contextmanager
def running(*flags: str, environment: Mapping[str, str], **variables: str) -> Iterator[Exporter]:
    """An exporter that has to end well and without a word."""
    exporter = Exporter(*flags, environment=environment, **variables)
    try:
        yield exporter
    finally:
        code, _, errors = exporter.end()
    assert (code, errors) == (0, "")


def reasons(found: Scrape) -> dict[int, str]:
    """Why each GPU is up or down, by its number; checks that only ``ok`` is up."""
    reported = {tuple(sorted(labels)): up for labels, up in found.all("gpu_up").items()}
    by_number: dict[int, str] = {}
    for labels, up in reported.items():
        named = dict(labels)
        assert (named["reason"] == "ok") == (up == 1)
        assert named["gpu"] not in by_number
        by_number[int(named["gpu"])] = named["reason"]
    return by_number


def all_ok(found: Scrape) -> bool:
    return reasons(found) == dict.fromkeys(range(8), "ok")


def shown(found: Scrape, metric: str = "gpu_utilization_ratio") -> set[int]:
    """Numbers of the GPUs that have this metric."""
    return {int(dict(labels)["gpu"]) for labels in found.all(metric)}


def nvml(found: Scrape) -> str | None:
    """The reason of ``gpu_exporter_nvml_up``; checks that only ``ok`` is up."""
    reported = found.all("gpu_exporter_nvml_up")
    assert len(reported) <= 1
    for labels, up in reported.items():
        reason = dict(labels)["reason"]
        assert (reason == "ok") == (up == 1)
        return reason
    return None


OTHERS = set(range(8)) - {3}
SCRAPES, LATE_SECONDS = 20, 0.05


def only_3(reason: str) -> Callable[[Scrape], bool]:
    """Is GPU 3 down with this reason, and is every other one up and shown?"""
    wanted = {gpu: reason if gpu == 3 else "ok" for gpu in range(8)}
    return lambda found: reasons(found) == wanted and shown(found) == OTHERS


def all_down(reason: str) -> Callable[[Scrape], bool]:
    """Are all GPUs known, and down for this reason?"""
    return lambda found: reasons(found) == dict.fromkeys(range(8), reason) and shown(found) == set()


def hung(call: str) -> Callable[[Scrape], object]:
    """Is a call with this name reported as hung?"""
    return lambda found: found.all("gpu_exporter_call_hung", call=call)


def lasting(exporter: Exporter, true: Callable[[Scrape], object]) -> None:
    """Fail unless it stays so, in finite numbers, and each page comes whatever the driver does.

    Pages that waited for the driver would all be late; for a busy processor some are.
    """
    times = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        page = http_client.read(exporter.url())
        times.append(time.perf_counter() - began)
        found = Scrape(page.encode())
        assert true(found), page
        assert all(map(math.isfinite, found.samples.values())), page
        time.sleep(0.05)
    assert in_time(median(times), LATE_SECONDS), times


def series(found: Scrape) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """All that is reported about GPUs; Xid errors, and samples of which there may be none, aside."""
    passing = ("gpu_xid_", "gpu_utilization_window_max")
    return {
        (name, labels)
        for name, labels in found.samples
        if "uuid" in dict(labels) and not name.startswith(passing)
    }

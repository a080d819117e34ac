"""The exporter as a real process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stepwatch.system import http_client
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS, recent_slowness
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

"""The run exporter beside a trainer, scraped as Prometheus does it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stepwatch.system import http_client
from tests.real import Server, free_port
from tests.runs.scrape import Scrape

ROOT = Path(__file__).parents[2]

INTERVAL = 2.0
"""Seconds between two scrapes."""

PROMPT = 15
"""Scrapes within which an end must be seen: 30 s."""


class Watching(Server):
    """The exporter of a folder, in a process of its own."""

    def __init__(self, folder: Path, *flags: str | Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._page = f"{self.url}/metrics"
        command = [sys.executable, "-m", "exporter.runs", "--path", folder, "--listen", "127.0.0.1"]
        super().__init__([*command, "--port", str(port), *flags], self._page, cwd=ROOT)

    def scrape(self) -> Scrape:
        """What it says now."""
        page = http_client.read(self._page, timeout=30)
        assert page is not None, self.log.read_text()
        return Scrape(page.encode())

    def scrapes(self, count: int) -> Iterator[Scrape]:
        """So many scrapes, one after another."""
        for _ in range(count):
            yield self.scrape()
            time.sleep(INTERVAL)

    def until(self, true: Callable[[Scrape], bool], count: int = PROMPT) -> Scrape:
        """The first of so many scrapes of which it is true."""
        for found in self.scrapes(count):
            if true(found):
                return found
        raise AssertionError(f"not within {count} scrapes:\n{brief(found)}")


def brief(found: Scrape) -> str:
    """What a scrape says of steps and states."""
    names = ("rl_step{", "rl_total_steps{", "rl_run_", "rl_reward{", "rl_resumes_total{")
    lines = (line for line in found.text.splitlines() if line.startswith(names))
    return "\n".join(line for line in lines if "timestamp" not in line)


def step(found: Scrape, run: str) -> int | None:
    """The step of a run."""
    value = found.value("rl_step", run=run)
    return None if value is None else int(value)


def agrees(found: Scrape, run: str, recorded: Mapping[int, float]) -> bool:
    """Whether the reward is what the trainer itself recorded at that step, as its console rounds it."""
    reward, at = found.value("rl_reward", run=run), step(found, run)
    return reward is not None and at is not None and abs(recorded[at] - reward) <= 5e-4 * abs(recorded[at])

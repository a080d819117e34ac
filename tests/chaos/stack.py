"""The stack as the chaos test sees it, whatever it runs in: what to strike, and what came of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stepwatch.system import http_client
from tests.chaos.runs import Runs

SICK = "sick"
SILENCED = "silenced"
"""Goes sick as well, but was silenced before any fault: it comes on top of the five runs."""
LOCAL = ("healthy-1", "healthy-2", "healthy-3", SICK, SILENCED)
REMOTE = "remote/healthy-4"
"""Logs on a file server, whose mount may hang."""
WEBHOOK = "webhook"

Samples = dict[str, set[tuple[float, str]]]
"""Time and value of each sample that Prometheus holds, by run."""


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one: its id, and when it started (0 in a container)."""

    pid: int
    started: float = 0


class Stack(ABC):
    """A running stack, and ``runs`` that log into its folder."""

    runs: Runs

    @abstractmethod
    def command(self, *words: str) -> None:
        """Run one of the user's commands, which must succeed."""

    @abstractmethod
    def status(self) -> tuple[int, str]:
        """Return the exit code of `make status`, and what it says."""

    @abstractmethod
    def repair(self) -> int:
        """Do what `make status` advises, and run `make up` as the last time.

        Returns:
            Its exit code, which is not 0 while another fault is in the way.
        """

    @abstractmethod
    def url(self, part: str) -> str:
        """Return where users reach a part."""

    @abstractmethod
    def processes(self) -> dict[str, Process]:
        """Return what runs of the stack, by name: the part's, else the program's."""

    @property
    @abstractmethod
    def listed(self) -> set[str]:
        """The names to which `make status` gives a row."""

    @abstractmethod
    def servers(self) -> list[str]:
        """Return the names of the processes that can be cut off, and the webhook."""

    @abstractmethod
    def inbound(self, name: str) -> tuple[list[str], list[str]] | None:
        """Return how packets to a server are filtered, ``None`` if it does not run.

        Returns:
            The words before `iptables` that lead to its network, and those that match its packets.
        """

    @abstractmethod
    def signal(self, process: Process, number: signal.Signals) -> bool:
        """Send a signal to a process; return whether it was there to get it."""

    @abstractmethod
    def missing(self, expected: Iterable[str]) -> list[str]:
        """Return which of these processes are gone, and which parts do not answer."""

    @abstractmethod
    def notified(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield when each alert in each message came (Unix time), and the alert."""

    @abstractmethod
    def last_words(self) -> str:
        """Return how the logs of the parts end."""

    def row(self, name: str) -> str:
        """Return the pattern of what `make status` says of a process that does not work."""
        name = re.escape(name)
        return rf"(?m)^{name} +(?!up )\S" if name in self.listed else name.rpartition(".")[2]

    def samples(self) -> Samples | None:
        """Return each run's steps as Prometheus stored them, ``None`` if it does not answer."""
        text = http_client.read(f"{self.url('prometheus')}/api/v1/query?query=rl_step%5B1h%5D", timeout=3)
        if text is None:
            return None
        series = json.loads(text)["data"]["result"]
        return {each["metric"]["run"]: {tuple(sample) for sample in each["values"]} for each in series}

    def silenced(self) -> set[str]:
        """Return the runs that have a silence now."""
        active = [each for each in self._alertmanager("silences") if each["status"]["state"] == "active"]
        matchers = [matcher for silence in active for matcher in silence["matchers"]]
        return {matcher["value"] for matcher in matchers if matcher["name"] == "run"}

    def critical(self) -> set[str]:
        """Return the runs about which Alertmanager holds critical alerts, muted ones included."""
        labels = [alert["labels"] for alert in self._alertmanager("alerts")]
        return {each["run"] for each in labels if "run" in each and each["severity"] == "critical"}

    def _alertmanager(self, page: str) -> list[dict[str, Any]]:
        text = http_client.read(f"{self.url('alertmanager')}/api/v2/{page}")
        found: list[dict[str, Any]] = json.loads(text or "[]")
        return found


def run(*words: str | Path) -> None:
    """Run a program that must succeed."""
    subprocess.run(words, check=True, capture_output=True)

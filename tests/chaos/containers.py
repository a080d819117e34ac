"""The Compose stack, with runs in its folder and a webhook in its network."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any

from typing_extensions import Self

from stepwatch.system import http_client
from tests.chaos.runs import Runs
from tests.chaos.stack import LOCAL, WEBHOOK, Process, Stack
from tests.compose.checkout import Checkout

KINDS = ("kill", "freeze", "cut")
_SINK = "sink"
_READY = {
    "exporter": "/-/healthy",
    "gpu": "/-/healthy",
    "prometheus": "/-/ready",
    "alertmanager": "/-/ready",
    "grafana": "/api/health",
}


class Containers(Stack):
    """The containers of a checkout, which are up; its runs log while the ``with`` block runs."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self.runs = Runs(dict.fromkeys((*LOCAL, "healthy-4"), checkout.folder / "runs"))

    def __enter__(self) -> Self:
        self.runs.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.runs.stop()

    def command(self, *words: str) -> None:
        done = self._checkout.stepwatch(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"

    def status(self) -> tuple[int, str]:
        done = self._checkout.stepwatch("status")
        return done.returncode, f"{done.stdout}{done.stderr}"

    def repair(self) -> int:
        return self._checkout.stepwatch("up").returncode

    def url(self, part: str) -> str:
        return self._checkout.url(part)

    def processes(self) -> dict[str, Process]:
        containers = self._checkout.containers()
        return {name: Process(each["State"]["Pid"]) for name, each in containers.items()}

    @property
    def listed(self) -> set[str]:
        return set(self.processes())

    def servers(self) -> list[str]:
        return [*self.processes(), WEBHOOK]

    def inbound(self, name: str) -> tuple[list[str], list[str]] | None:
        process = self._webhook() if name == WEBHOOK else self.processes().get(name)
        return (["nsenter", f"--target={process.pid}", "--net"], []) if process else None

    def _webhook(self) -> Process:
        return Process(int(self._checkout.docker.docker("inspect", "--format={{.State.Pid}}", _SINK)))

    def signal(self, process: Process, number: signal.Signals) -> bool:
        if process not in self.processes().values():
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:  # it ended at this moment
            return False
        return True

    def missing(self, expected: Iterable[str]) -> list[str]:
        asked = {name: f"{self.url(name)}{_READY[name]}" for name in expected if name in _READY}
        silent = {name for name, page in asked.items() if http_client.read(page, timeout=2) is None}
        return sorted(silent | (set(expected) - self.processes().keys()))

    def notified(self) -> Iterator[tuple[float, dict[str, Any]]]:
        for line in self._checkout.docker.docker("logs", "--timestamps", _SINK).splitlines():
            stamp, message = line.split(" ", 1)
            at = datetime.fromisoformat(f"{stamp[:26]}+00:00").timestamp()  # of nine digits Python reads six
            for alert in json.loads(message)["alerts"]:
                yield at, alert

    def last_words(self) -> str:
        return self._checkout.compose("logs", "--tail=20")

"""What is registered now: asked by discovery, changed by clients, kept over restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from threading import Lock

from exporter.http.exposition import Family, Sample
from exporter.runs.discovery.target_registry import ROLLOUT, TRAINER, Target
from exporter.runs.registrations.registration import TRAINERS, RegistrationRequest
from exporter.runs.registrations.store import GONE_SECONDS, Registration, Silence, Store, Table
from exporter.runs.visible.views import View

ENGINES = ("vllm", "sglang", "trtllm", "rollout")
"""How the jobs of rollout servers begin: verl registers them by the engine's name."""

JOB_LABEL = "rl_insight_job"
"""Where rl-insight keeps the name of a job, too."""

TEND_SECONDS = 60.0


class Registry:
    """A source of targets. Each method may be called from any thread.

    ``silence`` says which servers are gone; until someone knows, none is.
    """

    name = "registered"

    def __init__(self, ledger: Store) -> None:
        self.silence: Silence = lambda _: 0.0
        self._runs: Mapping[str, View] = {}
        self._ledger = ledger
        self._lock = Lock()
        self._table = Table(ledger.load())
        self.read = max((one.at for one in self._table), default=None)
        self._saved = 0
        self._tended = time.monotonic()

    def add(self, order: RegistrationRequest) -> int:
        """Register servers; returns how many there are of their job now.

        Raises:
            RefusedError: there is no room for them.
        """
        with self._lock:
            self.read = time.time()
            self._table.add(order, self.read, self.silence)
            return self._table.of_job(order.job)

    def heed(self, runs: Mapping[str, View]) -> None:
        """These are the runs of trainers' pages now."""
        self._runs = runs

    def targets(self) -> list[Target]:
        """All servers, for Prometheus to read."""
        with self._lock:
            return [_target(one, self._runs.get(one.address)) for one in self._table]

    def trainers(self) -> list[str]:
        """Addresses of trainers' pages that live, the last one that was registered first."""
        with self._lock:
            pages = [one for one in self._table if one.job == TRAINERS]
        pages.sort(key=lambda one: -one.at)
        return [one.address for one in pages if self.silence(one.address) < GONE_SECONDS]

    def tend(self) -> None:
        """Keep what changed, and forget what is gone for good; call it again and again."""
        now = time.monotonic()
        with self._lock:
            if now - self._tended > TEND_SECONDS:
                self._tended = now
                self._table.forget(self.silence)
        self.save()

    def save(self) -> None:
        """Keep what changed since the last time."""
        with self._lock:
            version, known = self._table.version, list(self._table)
        if version != self._saved and self._ledger.save(known):
            self._saved = version

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """How many servers there are, and what went wrong with the file."""
        with self._lock:
            count = len(self._table)
        yield Family("stepwatch_registered_servers", "gauge", "Servers that are registered."), [({}, count)]
        family = Family("stepwatch_registration_file_errors_total", "counter", "Failures of their file.")
        yield family, [({}, self._ledger.errors)]


def _target(one: Registration, run: View | None) -> Target:
    kind = ROLLOUT if one.job.startswith(ENGINES) else TRAINER
    labels = {**one.labels, JOB_LABEL: one.job, "job": kind, "role": kind}
    if run is None:
        return Target(one.address, labels, source=Registry.name)
    return Target(one.address, {**labels, "run": run.name}, source=Registry.name, over=run.state != "running")

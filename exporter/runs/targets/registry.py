"""What clients registered: a table of servers, which is saved, since clients register once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from exporter.http.exposition import Metric, own
from exporter.runs.files import state_file
from exporter.runs.files.mounts import Mount
from exporter.runs.serve.views import View
from exporter.runs.targets.target import LONGEST, ROLLOUT, TRAINER, AddressError, Allowed, Target

logger = logging.getLogger(__name__)
TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""
ENGINES = ("vllm", "sglang", "trtllm", "rollout")
"""How the jobs of rollout servers begin: verl registers them by the engine's name."""
JOB_LABEL = "rl_insight_job"  # where rl-insight keeps the name of a job, too
MOST = 2000
MOST_OF_JOB = 1000
MOST_LABELS, LONGEST_JOB, LONGEST_NAME = 8, 100, 64
LONGEST_VALUE = 100  # characters; Prometheus keeps each label's text for as long as the series
GONE_SECONDS = 600.0
"""A server that is silent for that long makes room for another, if there is no other room."""
FORGOTTEN_SECONDS = 24 * 3600.0
"""None comes back after that time: the next run has other ports, and registers them."""
FORGET_SECONDS = 60.0  # between two looks for servers that will not come back
NAME, ASIDE, TITLE = "registrations.state", "registrations.aside", "stepwatch-registrations 1"
_LONGEST_TEXTS = LONGEST + LONGEST_JOB + MOST_LABELS * (LONGEST_NAME + LONGEST_VALUE)
MOST_BYTES = 200 + MOST * (4 * _LONGEST_TEXTS + 250)
"""What the most registrations with the longest texts take: no sign more than 4 bytes, as UTF-8 has it, and
250 for names, quotes and the time. Without a bound, any file that lies there would be read whole.
"""


class RefusedError(Exception):
    """A request cannot be granted: the word it is counted by, its status, the reason, and headers."""

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


@dataclass(frozen=True, slots=True)
class Registration:
    """A server: its address, the job it was registered for, its labels, and when, since the epoch."""

    address: str
    job: str
    labels: Mapping[str, str]
    at: float


class Registry:
    """A source of targets: of an address the last registration counts. Any thread may call its methods.

    ``silence`` returns for how many seconds an address has taken no connection; set it once that is known.
    Without a ``folder`` nothing is stored.
    """

    name = "registered"

    def __init__(self, folder: Path | None, allowed: Allowed) -> None:
        self.silence: Callable[[str], float] = lambda _: 0.0
        self._path, self._allowed, self._thread = folder and folder / NAME, allowed, Mount(str(folder))
        self._errors, self._problem = 0, ""
        self._runs: Mapping[str, View] = {}
        self._lock, self._forgot = Lock(), time.monotonic()
        # replaced as a whole with each change, so that only a change needs the lock
        self._known = self._saved = {one.address: one for one in self._loaded()}
        self.read = max((one.at for one in self._known.values()), default=None)

    def add(self, new: Sequence[Registration]) -> int:
        """Register servers of one job, all or none; returns how many there are of it. Raises RefusedError."""
        job, addresses = new[0].job, {one.address for one in new}
        with self._lock:
            others = [one for one in self._known.values() if one.address not in addresses]
            for most, which in ((MOST_OF_JOB, "of one job"), (MOST, "in all")):
                group = [one.address for one in others if one.job == job or most == MOST]
                surplus = max(0, len(group) + len(new) - most)
                silent = {address: self.silence(address) for address in group} if surplus else {}
                gone = [address for address in silent if silent[address] >= GONE_SECONDS]
                if len(gone) < surplus:
                    words = f"No room for {len(new)} more servers: {len(group)} are registered."
                    words = f"{words} Expected: at most {most} {which}."
                    raise RefusedError("full", "503 Service Unavailable", words)
                leaving = set(sorted(gone, key=lambda address: -silent[address])[:surplus])
                others = [one for one in others if one.address not in leaving]
            self._known = {one.address: one for one in (*others, *new)}
        self.read = time.time()
        return sum(one.job == job for one in self._known.values())

    def set_runs(self, runs: Mapping[str, View]) -> None:
        """Take the runs of trainers' pages, by address, as they are now."""
        self._runs = runs

    def targets(self) -> Iterator[Target]:
        """Yield all servers, for Prometheus to read."""
        for one in self._known.values():
            kind, run = ROLLOUT if one.job.startswith(ENGINES) else TRAINER, self._runs.get(one.address)
            labels = {**one.labels, JOB_LABEL: one.job, "job": kind, "role": kind}
            if run:
                labels["run"] = run.name
            yield Target(one.address, labels, over=run is not None and run.state != "running")

    def trainers(self) -> list[str]:
        """Return the addresses of trainers' pages that are alive, the last one that was registered first."""
        pages = [one for one in self._known.values() if one.job == TRAINERS]
        pages.sort(key=lambda one: -one.at)
        return [one.address for one in pages if self.silence(one.address) < GONE_SECONDS]

    def maintain(self) -> None:
        """Save changes, and forget servers that will not return; called repeatedly."""
        now = time.monotonic()
        if now - self._forgot > FORGET_SECONDS:
            self._forgot = now
            with self._lock:
                left = {
                    name: one for name, one in self._known.items() if self.silence(name) < FORGOTTEN_SECONDS
                }
                self._known = left if len(left) < len(self._known) else self._known
        self.save()

    def save(self) -> None:
        """Write what is registered now, if it changed since the last time."""
        known, path = self._known, self._path
        if known is self._saved:
            return
        if path is None:
            if not self._problem:
                self._problem = "Registrations are kept in memory only. Fix: name a folder with --state-dir."
                logger.warning("%s", self._problem)
            self._saved = known
            return
        # with its escapes (ensure_ascii) a sign could take 12 bytes
        body = json.dumps([asdict(one) for one in known.values()], ensure_ascii=False).encode()
        try:
            self._thread.call(lambda: state_file.write(path, TITLE, body))
        except OSError as problem:
            words = f"{path} cannot be written: {problem.strerror}."
            self._fail(f"{words} A restart would lose the registrations. The exporter retries.")
        else:
            self._saved, self._problem = known, ""

    def samples(self) -> Iterator[Metric]:
        """Yield how many servers there are, and the failures of the file."""
        yield own("registered_servers", "Registered servers.", len(self._known))
        text = "Failures to read or write the file of registrations."
        yield own("registration_file_errors_total", text, self._errors)

    def _loaded(self) -> list[Registration]:
        """The stored registrations, as far as they are allowed. A damaged file is moved aside."""
        path = self._path
        try:
            body = self._thread.call(lambda: state_file.read(path, TITLE, MOST_BYTES)) if path else b"[]"
        except FileNotFoundError:
            return []
        except OSError as problem:
            self._fail(f"{path} cannot be read: {problem.strerror}. Starting without registrations.")
            return []
        if body is None and path:
            aside = path.with_name(ASIDE)
            try:
                path.replace(aside)
            except OSError:
                aside = path
            self._fail(
                f"{path} is damaged. It was moved to {aside}; starting without registrations. Fix: none is "
                "needed for jobs that start from now on."
            )
        allowed = []
        for one in (Registration(**fields) for fields in json.loads(body or b"[]")[:MOST]):
            try:
                self._allowed.checked(one.address)
                allowed.append(one)
            except AddressError as problem:  # noqa: PERF203  (settings may have changed since)
                logger.warning("A registered server is left out: %s.", problem)
        return allowed

    def _fail(self, problem: str) -> None:
        """Count and log a failure, once until the file is written again."""
        if problem != self._problem:
            self._errors += 1
            logger.error("%s", problem)
        self._problem = problem

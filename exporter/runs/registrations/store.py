"""What is registered, and the file that keeps it over a restart: clients register once and never again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exporter.runs.discovery.address import LONGEST, AddressError, Allowed
from exporter.runs.files import state_file
from exporter.runs.files.mounts import Mount
from exporter.runs.registrations import registration
from exporter.runs.registrations.registration import LONGEST_JOB, RefusedError, RegistrationRequest

MOST = 2000
MOST_OF_JOB = 1000

Silence = Callable[[str], float]
"""For how many seconds an address has taken no connection; 0 for one that no one has tried."""

GONE_SECONDS = 600.0
"""A server that is silent for that long makes room for another, if there is no other room."""

FORGOTTEN_SECONDS = 24 * 3600.0
"""None comes back after that time: the next run has other ports, and registers them."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A server: its address, the job it was registered for, its labels, and when, since the epoch."""

    address: str
    job: str
    labels: Mapping[str, str]
    at: float


class Table:
    """Registrations by address: a port has one server, and who registered it last knows which.

    ``version`` rises with each change.
    """

    def __init__(self, known: Iterable[Registration] = ()) -> None:
        self.version = 0
        self._known = {one.address: one for one in known}

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def of_job(self, job: str) -> int:
        """How many servers of a job there are."""
        return sum(one.job == job for one in self)

    def add(self, order: RegistrationRequest, now: float, silence: Silence) -> None:
        """Register all servers of an order, or none; ``now`` in seconds since the epoch.

        Raises:
            RefusedError: there is no room for them.
        """
        new = {server.address for server in order.servers}
        others = [one for one in self if one.address not in new]
        of_job = [one for one in others if one.job == order.job]
        leaving = _leaving(of_job, len(new), MOST_OF_JOB, silence)
        leaving |= _leaving([one for one in others if one.address not in leaving], len(new), MOST, silence)
        kept = {one.address: one for one in others if one.address not in leaving}
        self._known = kept | {
            server.address: Registration(server.address, order.job, server.labels, now)
            for server in order.servers
        }
        self.version += 1

    def forget(self, silence: Silence) -> None:
        """Forget those who will not come back."""
        kept = {one.address: one for one in self if silence(one.address) < FORGOTTEN_SECONDS}
        if len(kept) < len(self):
            self._known = kept
            self.version += 1


def _leaving(others: list[Registration], new: int, most: int, silence: Silence) -> set[str]:
    """Those who make room: the longest silent, and never one that lives."""
    surplus = max(0, len(others) + new - most)
    silent = {one.address: silence(one.address) for one in others} if surplus else {}
    gone = [address for address, seconds in silent.items() if seconds >= GONE_SECONDS]
    if len(gone) < surplus:
        which = "in all" if most == MOST else "of one job"
        words = f"There is no room for {new} servers beside {len(others)} others."
        raise RefusedError("full", "503 Service Unavailable", f"{words} Expected: at most {most} {which}.")
    return set(sorted(gone, key=lambda address: -silent[address])[:surplus])


logger = logging.getLogger(__name__)

NAME = "registrations.state"
ASIDE = "registrations.aside"
TITLE = "stepwatch-registrations 1"

_LONGEST_LABEL = registration.LONGEST_NAME + registration.LONGEST_VALUE
_LONGEST = LONGEST + LONGEST_JOB + registration.MOST_LABELS * _LONGEST_LABEL
_FIELDS = 250
"""Bytes of a registration beside its texts: names, quotes, commas, the time."""

MOST_BYTES = len(TITLE) + 100 + MOST * (4 * _LONGEST + _FIELDS)
"""What the most registrations with the longest texts take: no sign more than 4 bytes, as UTF-8 has it.

Less would lose what was accepted; without a bound, any file that lies there would be read whole.
"""


class Store:
    """Loads and saves; ``None`` as folder keeps nothing. ``errors`` counts what could not be."""

    def __init__(self, folder: Path | None, allowed: Allowed) -> None:
        self.errors = 0
        self._folder, self._allowed = folder, allowed
        self._failing = self._warned = False
        self._thread = Mount(str(folder))

    def load(self) -> list[Registration]:
        """What was registered. A file that is not as it was written is kept aside, and all begins anew."""
        if self._folder is None:
            return []
        try:
            path = self._folder / NAME
            body = self._thread.call(lambda: state_file.read(path, TITLE, MOST_BYTES))
        except FileNotFoundError:
            return []
        except OSError as problem:
            self._failed(
                f"{self._folder / NAME} cannot be read: {problem.strerror}. Registrations begin anew."
            )
            return []
        if body is None:
            self._lay_aside(self._folder)
            return []
        return list(self._allowed_ones(json.loads(body)))

    def save(self, known: Iterable[Registration]) -> bool:
        """Write what is registered now; returns whether that worked."""
        if self._folder is None:
            self._warn_that_nothing_is_kept()
            return True
        # with its escapes (ensure_ascii) a sign could take 12 bytes
        body = json.dumps([asdict(one) for one in known], ensure_ascii=False).encode()
        try:
            path = self._folder / NAME
            self._thread.call(lambda: state_file.write(path, TITLE, body))
        except OSError as problem:
            if not self._failing:
                self._failed(
                    f"{self._folder / NAME} cannot be written: {problem.strerror}. "
                    "A restart forgets what is registered. It is tried again."
                )
            self._failing = True
            return False
        self._failing = False
        return True

    def _warn_that_nothing_is_kept(self) -> None:
        if not self._warned:
            logger.warning("Registrations are kept in memory only. Fix: name a folder with --state-dir.")
        self._warned = True

    def _allowed_ones(self, kept: list[dict[str, Any]]) -> Iterator[Registration]:
        """Those that may be read by the settings of today, which may be others than before."""
        ones = [Registration(**fields) for fields in kept[:MOST]]
        yield from (one for one in ones if self._is_allowed(one.address))

    def _is_allowed(self, address: str) -> bool:
        try:
            self._allowed.checked(address)
        except AddressError as problem:
            logger.warning("A registered server is left out: %s.", problem)
            return False
        return True

    def _lay_aside(self, folder: Path) -> None:
        aside = folder / ASIDE
        try:
            (folder / NAME).replace(aside)
        except OSError:
            aside = folder / NAME
        self._failed(
            f"{folder / NAME} is not as Stepwatch wrote it. It is kept as {aside}, "
            "and registrations begin anew. Fix: none is needed for jobs that start from now on."
        )

    def _failed(self, words: str) -> None:
        self.errors += 1
        logger.error("%s", words)

"""All that is registered: who, as what, and when; so much of it, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from exporter.runs.registrations.refusal import RefusedError
from exporter.runs.registrations.registration import Order

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

    def add(self, order: Order, now: float, silence: Silence) -> None:
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
        """Let go of those who will not come back."""
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

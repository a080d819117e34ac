"""Sources that are asked over the network: pages of metrics, and tracking servers."""

from __future__ import annotations

from typing import Protocol

from exporter.runs.signals.record import Event


class Target(Protocol):
    """What is polled. ``name`` is the user's word for it, ``source`` the label of its runs.

    ``has_history``: the first poll brings all that was ever logged. ``is_trainer``: it is the trainer
    itself that answers, so that its silence means something. ``reported``: the runs that a trainer's
    last answer reported. ``lacking``: why part of what was asked for is not in the last answer.
    """

    name: str
    source: str
    has_history: bool
    is_trainer: bool
    reported: frozenset[str]
    lacking: tuple[str, ...]

    def poll(self) -> list[Event]:
        """What is new since the last call that succeeded.

        Raises:
            PollError: it is not available now; the next call loses nothing.
        """

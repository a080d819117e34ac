"""Opens all GPUs at once, so that one that hangs, or takes seconds, holds up no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Thread

from exporter.gpu.backend import BackendError, Card, CardError, Quantity

PATIENCE_SECONDS = 2.0
"""What opens in this time is there from the first page on."""


class Opening:
    """A GPU that is being opened, and once it is, that GPU."""

    uuid = ""
    quantities: Sequence[Quantity] = ()

    def __init__(self, number: int, opened: Callable[[int], Card]) -> None:
        self.number = number
        self._opened = opened
        self._problem: BackendError | None = None
        self._card: Card | None = None
        self._thread = Thread(target=self._open, name=f"opening {number}", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._card = self._opened(self.number)
        except BackendError as problem:
            self._problem = problem

    def card(self, seconds: float) -> Card:
        """The GPU itself if it opens within that time, else one that may still become it.

        Raises:
            BackendError: only a new worker helps.
        """
        self._thread.join(seconds)
        if self._problem is not None:
            raise self._problem
        return self._card or self

    def find(self) -> None:
        """Become the GPU, if it is open by now."""
        card = self.card(0)
        if card is self:
            raise CardError("timeout")
        card.find()
        self.uuid, self.quantities = card.uuid, card.quantities
        self.find = card.find  # type: ignore[method-assign]


def open_all(count: int, opened: Callable[[int], Card]) -> list[Card]:
    """Every GPU of that many; ``opened`` opens one. Raises ``BackendError`` as that does."""
    until = time.monotonic() + PATIENCE_SECONDS
    openings = [Opening(number, opened) for number in range(count)]
    return [opening.card(max(0.0, until - time.monotonic())) for opening in openings]

"""A box of GPUs that is read when a test says so, and its page: no threads, and a clock of the test's."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.gpu.backend import Backend, Event, Settings
from exporter.gpu.gpus import Gpus


class Box:
    """Opened at once; ``interval`` in seconds."""

    def __init__(self, backend: Backend, interval: float) -> None:
        self.backend = backend
        self.gpus = Gpus(lambda _: backend, Settings(interval=interval))
        self.readers = self.gpus.open(backend)
        self.gpus.show(self.readers)

    def page(self, now: float, wall: float, events: Iterable[Event] = ()) -> str:
        """The page after another reading: ``now`` of the steady clock, ``wall`` since 1970."""
        for reader in self.readers:
            reader.read(now, wall)
        self.gpus.count([*self.backend.events(0), *events])
        return self.gpus.page(now).decode()

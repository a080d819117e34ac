from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, settings

from exporter.runs.discovery.address import Allowed, Allowlist

settings.register_profile(
    "rollouts", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("rollouts")


@pytest.fixture(name="allowlist")
def _allowlist() -> Allowlist:
    return Allowlist(Allowed())


@pytest.fixture(name="write")
def _write() -> Callable[[Path, str | bytes], None]:
    """Writes a file that settled ten seconds ago."""

    def write(path: Path, content: str | bytes) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (time.time() - 10,) * 2)

    return write


class Listener:
    """A server that takes connections and says nothing, and can go and come back."""

    def __init__(self) -> None:
        self.port = 0
        self.come_back()
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def come_back(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        Thread(target=self._take, args=[self._socket], daemon=True).start()

    def _take(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                client.close()

    def go(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(name="listener")
def _listener() -> Iterator[Callable[[], Listener]]:
    """Makes servers."""
    made: list[Listener] = []

    def listener() -> Listener:
        made.append(Listener())
        return made[-1]

    yield listener
    for one in made:
        one.go()

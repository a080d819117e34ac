"""The door of a hub as a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter import credentials
from stepwatch.system.environment import CHECKOUT
from tests.real import Server, free_port


@dataclass
class Door:
    """A running door: host:port of its own pages, and its process."""

    address: str
    server: Server


@contextmanager
def before(prometheus: str, access: Path, *flags: str) -> Iterator[Door]:
    """The door before a Prometheus, given by host:port; ``access`` is the folder of its credentials."""
    port = free_port()
    command = (
        *(sys.executable, "-m", "exporter.door"),
        *(f"--port={port}", f"--prometheus={prometheus}"),
        f"--password-file={access / credentials.PASSWORD}",
        *flags,
    )
    env = {"PYTHONPATH": str(CHECKOUT), "PYTHONWARNINGS": "error"}
    with Server(command, f"http://127.0.0.1:{port}/-/healthy", env=env, cwd=CHECKOUT) as server:
        yield Door(f"127.0.0.1:{port}", server)

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from exporter.runs.targets import discovery
from tests.real import eventually
from tests.runs.served import Serve, Served

settings.register_profile(
    "rollouts", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("rollouts")


@pytest.fixture(name="serve")
def _serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start exporters that look and probe often, on this machine only."""
    real = discovery.probe

    async def probe(host: str, *rest: Any) -> tuple[bool, int | None] | None:
        return await real(host, *rest) if host.startswith("127.") else None

    monkeypatch.setattr(discovery, "probe", probe)
    for name, seconds in (("LOOK", 0.02), ("START", 0.02), ("PROBE", 0.05), ("TIMEOUT", 0.3)):
        monkeypatch.setattr(discovery, f"{name}_SECONDS", seconds)
    running: list[Served] = []

    def serve(*flags: object, looks: bool = True) -> Served:
        running.append(Served("--path", folder, *flags))
        if looks:
            running[-1].looks()
            eventually(lambda: running[-1].ask("GET", "/sd/rollout").status == 200, pause=0.02)
        return running[-1]

    yield serve
    for each in running:
        each.stop()
    for thread in threading.enumerate():
        if thread.name == "discovery":  # it would go on with what a test has changed back
            thread.join()


@pytest.fixture(name="write")
def _write() -> Callable[[Path, str | bytes], None]:
    """Writes a file that settled ten seconds ago."""

    def write(path: Path, content: str | bytes) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (time.time() - 10,) * 2)

    return write

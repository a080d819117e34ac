from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.runs.served import _serve  # noqa: F401  (a fixture)

settings.register_profile(
    "rollouts", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("rollouts")


@pytest.fixture(name="write")
def _write() -> Callable[[Path, str | bytes], None]:
    """Writes a file that settled ten seconds ago."""

    def write(path: Path, content: str | bytes) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (time.time() - 10,) * 2)

    return write

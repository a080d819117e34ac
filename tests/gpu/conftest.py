from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import QUICK, Exporter


@pytest.fixture(name="driver")
def _driver(tmp_path: Path) -> Iterator[Driver]:
    """A driver with eight GPUs."""
    driver = Driver(tmp_path)
    driver.install()
    yield driver
    driver.release()


@pytest.fixture(name="start")
def _start(driver: Driver) -> Iterator[Callable[..., Exporter]]:
    """Start an exporter on that driver; quick, unless other flags are given."""
    started: list[Exporter] = []

    def start(*flags: str, **variables: str) -> Exporter:
        exporter = Exporter(*(flags or QUICK), environment=driver.environment, **variables)
        started.append(exporter)
        return exporter

    yield start
    for exporter in started:
        if exporter.process.poll() is None:
            exporter.end()

"""The settings file that generate.py writes: read at the start, and taken up again when it is replaced."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, shown
from tests.real.waiting import eventually, slowness
from tests.records import refusal
from tests.runs.scrape import Scrape

AT = "gpu_exporter_config_last_reload_success_timestamp_seconds"
SUCCESSFUL = "gpu_exporter_config_last_reload_successful"


class File:
    """As generate.py leaves it: another file takes the place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.slow = slowness()

    def interval(self, seconds: float) -> float:
        """An interval, longer on a busy machine."""
        return round(seconds * self.slow, 3)

    def write(self, **settings: object) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(settings))
        fresh.replace(self.path)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> File:
    file = File(tmp_path / "gpu.json")
    file.write(interval=file.interval(0.2), expected=4)
    return file


@pytest.fixture(name="exporter")
def _exporter(start: Starting, file: File) -> Exporter:
    exporter = start("--retry=0.3", f"--config.file={file.path}")
    exporter.until(all_ok)
    return exporter


def test_new_settings_leave_no_gap_and_lose_no_counter(
    driver: Driver, exporter: Exporter, file: File
) -> None:
    driver.tell("gpus=8", "xid=3:79:1")
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    driver.tell("gpus=8")
    before, at = found.value("gpu_exporter_nvml_reinit_total") or 0, found.value(AT) or 0
    assert found.value("gpu_devices_expected") == 4
    file.write(interval=file.interval(0.5), expected=9)

    def replaced(found: Scrape) -> bool:
        assert all_ok(found)
        assert shown(found) == set(range(8))
        return (found.value("gpu_exporter_nvml_reinit_total") or 0) > before

    exporter.until(replaced)
    found = exporter.scrape()

    assert found.value("gpu_devices_expected") == 9
    assert (found.value(AT) or 0) > at
    assert found.value(SUCCESSFUL) == 1
    assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1
    assert exporter.process.poll() is None

    def at_the_new_pace() -> bool:
        """At the pace before there are two and a half times as many; what was late is made up for once."""
        driver.forget_calls()
        began = time.monotonic()
        eventually(lambda: driver.calls()["GetUtilizationRates", 3] >= 12)
        return driver.calls()["GetUtilizationRates", 3] <= (time.monotonic() - began) / 0.5 / file.slow + 4

    assert any(at_the_new_pace() for _ in range(3))
    assert "New settings: applied without a restart." in exporter.end()[1]


def test_settings_that_cannot_be_used_are_reported_and_the_old_ones_stay(
    exporter: Exporter, file: File
) -> None:
    at = exporter.scrape().value(AT)
    file.write(interval="soon")
    found = exporter.until(lambda found: found.value(SUCCESSFUL) == 0)

    assert found.value(AT) == at
    assert found.value("gpu_devices_expected") == 4
    time.sleep(1)
    assert all_ok(exporter.scrape())
    file.write(interval=0.2)
    found = exporter.until(lambda found: found.value(SUCCESSFUL) == 1)
    assert found.value("gpu_devices_expected") == 8
    errors = exporter.end()[2]
    assert (
        f"{file.path}: interval: 'soon' is not a positive number. Expected one such as 15 or 0.5." in errors
    )
    assert errors.endswith(" The running settings stay in effect.\n")


def test_settings_that_cannot_be_used_at_the_start_are_refused(file: File) -> None:
    file.write(pcie="yes")
    errors = refusal(Exporter(f"--config.file={file.path}").process)

    assert f"{file.path}: pcie: 'yes' is not a boolean. Expected true or false. Fix: " in errors

"""``python -m exporter.gpu``: its flags, the settings file that generate.py writes, and its pages."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

from exporter.gpu.__main__ import command_line
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, shown
from tests.real.waiting import eventually, slowness
from tests.records import refusal
from tests.runs.scrape import Scrape

AT = "gpu_exporter_config_last_reload_success_timestamp_seconds"
SUCCESSFUL = "gpu_exporter_config_last_reload_successful"


def write(path: Path, **settings: object) -> Path:
    """As generate.py leaves it: another file takes the place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(settings))
    return fresh.replace(path)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return write(tmp_path / "gpu.json", interval=round(0.2 * slowness(), 3), expected=4)


@pytest.fixture(name="exporter")
def _exporter(start: Starting, file: Path) -> Exporter:
    exporter = start("--retry=0.3", f"--config.file={file}")
    exporter.until(all_ok)
    return exporter


def test_new_settings_leave_no_gap_and_lose_no_counter(
    driver: Driver, exporter: Exporter, file: Path
) -> None:
    driver.tell("gpus=8", "xid=3:79:1")
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    before, at = found.value("gpu_exporter_nvml_reinit_total") or 0, found.value(AT) or 0
    assert found.value("gpu_devices_expected") == 4
    slow = slowness()
    write(file, interval=round(0.5 * slow, 3), expected=9)

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
        return driver.calls()["GetUtilizationRates", 3] <= (time.monotonic() - began) / 0.5 / slow + 4

    assert any(at_the_new_pace() for _ in range(3))
    assert "New settings: applied without a restart." in exporter.end()[1]


def test_settings_that_cannot_be_used_are_reported_and_the_old_ones_stay(
    exporter: Exporter, file: Path
) -> None:
    at = exporter.scrape().value(AT)
    write(file, interval="soon")
    found = exporter.until(lambda found: found.value(SUCCESSFUL) == 0)

    assert found.value(AT) == at
    assert found.value("gpu_devices_expected") == 4
    time.sleep(1)
    assert all_ok(exporter.scrape())
    write(file, interval=0.2)
    found = exporter.until(lambda found: found.value(SUCCESSFUL) == 1)
    assert found.value("gpu_devices_expected") == 8
    errors = exporter.end()[2]
    assert f"{file}: interval: 'soon' is not a positive number. Expected one such as 15 or 0.5." in errors
    assert errors.endswith(" The running settings stay in effect.\n")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--port", "http", "'http' is not a port. Expected a number from 1 to 65535."),
        ("--interval", "1s", "'1s' is not a positive number. Expected one such as 15 or 0.5."),
        ("--retry", "inf", "'inf' is not a positive number"),
        ("--pcie", "yes", "'yes' is not a boolean. Expected true or false."),
        ("--backend", "rocm", "'rocm' is not a backend. Expected nvml or demo."),
    ],
)
def test_a_bad_value_is_refused_with_its_flag_or_its_file_and_key(
    flag: str, value: str, expected: str, tmp_path: Path
) -> None:
    key = flag.strip("-")
    file = write(tmp_path / "gpu.json", **{key: value})

    assert f"argument {flag}: {expected}" in refusal(Exporter(f"{flag}={value}").process)
    said = refusal(Exporter(f"--config.file={file}").process)
    assert said.startswith(f"{file}: {key}: {expected}")
    assert " Expected " in said
    assert " Fix: correct the file" in said


def test_a_port_in_use_and_a_gpu_that_is_not_there_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(Exporter("--port", str(port)).process)

    assert re.search(rf"--port {port}.*Fix: ", said)
    with pytest.raises(SystemExit):
        command_line(["--backend=demo", "--profile=rtx4080", "--sick=5"]).options()
    assert "--sick 5: no such GPU. Expected a number from 0 to 1" in capsys.readouterr().err


def test_it_is_healthy_at_once_and_ready_after_the_first_reading(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "hang=Init")
    exporter = start()
    exporter.until(lambda found: nvml(found) == "starting")

    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready")] == [200, 503]
    driver.tell("gpus=8")
    exporter.until(all_ok)
    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready", "/", "/no")] == [200, 200, 200, 404]
    assert exporter.ask("/metrics", "POST")[0] == 405

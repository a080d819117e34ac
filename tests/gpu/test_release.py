"""The GPUs are released for a while, or for good: so that someone can reset one, or change MIG."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from stepwatch.__main__ import main
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, hung, nvml, only_3, shown
from tests.real import free_port
from tests.real.waiting import in_time

RELEASE = "/-/release"


@pytest.fixture(name="exporter")
def _exporter(start: Starting) -> Exporter:
    exporter = start()
    exporter.until(all_ok)
    return exporter


def test_the_answer_comes_when_no_device_is_open_and_nothing_is_asked_until_the_time_is_over(
    driver: Driver, exporter: Exporter
) -> None:
    driver.tell("gpus=8", "xid=3:79:1")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    status, said = exporter.ask(f"{RELEASE}?seconds=3", "POST")
    released = time.monotonic()

    assert (status, said.partition("\n")[0]) == (200, "The GPUs are released for 3 s: no device is open.")
    assert driver.calls()["Shutdown", -1] == 1
    driver.forget_calls()
    while time.monotonic() < released + 2:
        found = exporter.scrape()
        assert nvml(found) == "released"
        assert not found.all("gpu_up")
        assert not found.all("gpu_devices")
        assert not shown(found)
        assert found.value("gpu_devices_expected") == 8
        assert exporter.devices() == []
        time.sleep(0.1)
    assert not driver.calls()
    found = exporter.until(all_ok)

    assert time.monotonic() - released >= 2
    assert found.value("gpu_exporter_nvml_reinit_total") == 1
    assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1


@pytest.mark.parametrize("hang", ["GetUtilizationRates", "Init", "EventSetWait"])
def test_while_a_call_hangs_they_are_released_all_the_same_and_nothing_is_forgotten(
    driver: Driver, start: Starting, hang: str
) -> None:
    driver.tell("gpus=8", "xid=3:79:1", *(["hang=Init"] if hang == "Init" else []))
    exporter = start()
    if hang != "Init":
        exporter.until(lambda found: all_ok(found) and found.value("gpu_xid_errors_total", gpu="3", xid="79"))
    driver.tell("gpus=8", f"hang={hang}")
    exporter.until(hung(hang))
    assert exporter.devices()
    began = time.monotonic()
    status, said = exporter.ask(f"{RELEASE}?seconds=3", "POST")

    assert (status, said.partition("\n")[0]) == (200, "The GPUs are released for 3 s: no device is open.")
    assert in_time(time.monotonic() - began, 3)
    assert exporter.devices() == []
    driver.tell("gpus=8")
    assert nvml(exporter.until(lambda found: found.samples)) == "released"
    found = exporter.until(all_ok)
    assert found.value("gpu_devices_expected") == 8
    if hang != "Init":
        assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1


def test_a_thread_that_the_kernel_holds_is_reported_and_the_others_are_read_on(
    driver: Driver, exporter: Exporter
) -> None:
    driver.tell("gpus=8", "held=GetPowerUsage@3")
    exporter.until(only_3("timeout"))
    status, said = exporter.ask(RELEASE, "POST")
    exporter.until(only_3("timeout"))

    assert (status, said.partition(":")[0]) == (503, "A call hangs in the driver and cannot be ended")
    driver.tell("gpus=8")
    driver.release()
    exporter.until(all_ok)


def test_only_a_post_that_makes_sense_and_that_no_page_of_a_browser_sent(exporter: Exporter) -> None:
    for query in ("seconds=3601", "seconds=-1", "seconds=", "seconds=1.5", "seconds=60&more=1", "minutes=1"):
        said = "Expected: /-/release?seconds=N with N from 0 (ends the release) to 3600.\n"
        assert exporter.ask(f"{RELEASE}?{query}", "POST") == (400, said), query
    assert exporter.ask(RELEASE)[0] == 405
    assert exporter.ask(RELEASE, "POST", Origin="http://elsewhere")[0] == 403
    assert exporter.ask(RELEASE, "POST", **{"Transfer-Encoding": "chunked"})[0] == 411
    assert all_ok(exporter.scrape())


def test_however_often_nvml_is_reopened_nothing_grows(exporter: Exporter) -> None:
    def taken() -> tuple[int, float]:
        found = exporter.until(all_ok)
        threads = len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir()))
        return threads, (found.value("process_resident_memory_bytes") or 0) / 2**20

    threads, resident = taken()
    for _ in range(12):
        exporter.ask(f"{RELEASE}?seconds=60", "POST")
        exporter.ask(f"{RELEASE}?seconds=0", "POST")
        exporter.until(all_ok)

    assert taken()[0] == threads
    assert taken()[1] < resident + 8


@pytest.mark.parametrize("hang", ["", "GetUtilizationRates", "Init", "Shutdown", "EventSetWait"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_3_seconds_though_a_call_hangs(
    driver: Driver, start: Starting, hang: str, number: signal.Signals
) -> None:
    exporter = start()
    if hang != "Init":
        exporter.until(all_ok)
    driver.tell("gpus=8", *([f"hang={hang}"] if hang else []))
    if hang not in ("", "Shutdown"):
        exporter.until(hung(hang))
    began = time.monotonic()
    code, _, errors = exporter.end(number)

    assert (code, errors) == (0, "")
    assert in_time(time.monotonic() - began, 3)
    assert hang or driver.calls()["Shutdown", -1] == 1


# make gpu-release


def release(tmp_path: Path, port: int, span: str) -> int:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"ports": {"gpu": port}}))
    return main(["gpu-release", "--config", str(config), "--for", span])


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "stack"))


def test_make_gpu_release_releases_the_gpus_and_takes_them_back(
    exporter: Exporter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release(tmp_path, exporter.port, "5m") == 0
    assert exporter.devices() == []
    assert nvml(exporter.scrape()) == "released"
    assert "has released the GPUs for 5m" in capsys.readouterr().out
    assert release(tmp_path, exporter.port, "0s") == 0
    exporter.until(all_ok)
    assert capsys.readouterr().out == "The GPUs are read again.\n"


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ("soon", "Expected: a time such as 60s or 5m."),
        ("2h", "2h is too long. Expected: at most 1h."),
        ("60s", "The GPU exporter does not answer at http://127.0.0.1:"),
    ],
)
def test_what_cannot_be_is_reported_with_its_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], span: str, said: str
) -> None:
    assert release(tmp_path, free_port(), span) == 2
    reported = capsys.readouterr().err
    assert said in reported
    assert "Fix: " in reported

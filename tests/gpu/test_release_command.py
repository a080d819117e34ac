"""`make gpu-release` on a real exporter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwatch.__main__ import main
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, all_ok, nvml
from tests.real import free_port


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "stack"))

    def write(port: int) -> Path:
        (tmp_path / "config.yaml").write_text(json.dumps({"ports": {"gpu": port}}))
        return tmp_path / "config.yaml"

    return write


def release(config: Path, span: str) -> int:
    return main(["gpu-release", "--config", str(config), "--for", span])


def test_the_gpus_are_released_and_taken_back(
    driver: Driver,
    start: Callable[..., Exporter],
    config: Callable[[int], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    exporter = start()
    exporter.until(all_ok)
    file = config(exporter.port)

    assert release(file, "5m") == 0
    assert exporter.devices() == []
    assert driver.calls()["Shutdown", -1] == 1
    assert nvml(exporter.scrape()) == "released"
    assert "has released the GPUs for 5m" in capsys.readouterr().out
    assert release(file, "0s") == 0
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
    config: Callable[[int], Path], capsys: pytest.CaptureFixture[str], span: str, said: str
) -> None:
    assert release(config(free_port()), span) == 2
    reported = capsys.readouterr().err
    assert said in reported
    assert "Fix: " in reported

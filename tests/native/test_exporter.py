"""The run exporter looks after its settings itself; `up` and `status` tell whether it runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepwatch.deploy.native.stack import Part, Web
from stepwatch.services import settings
from stepwatch.system.environment import CHECKOUT
from tests.native.conftest import StandInStack
from tests.real import free_port


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "rendered/exporter/generated/runs.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"raw_limit": 40}')
    return file


@pytest.fixture(name="exporter")
def _exporter(file: Path, tmp_path: Path) -> Part:
    port = free_port()
    address = f"127.0.0.1:{port}"
    return Part(
        name="exporter",
        command=(
            *(sys.executable, "-m", "exporter.runs", f"--config.file={file}", f"--port={port}"),
            *("--path", str(tmp_path / "runs")),
        ),
        shows="no run",
        web=Web("127.0.0.1", {"exporter": port}, address, "/-/healthy", f"http://{address}"),
        environment={"PYTHONPATH": str(CHECKOUT)},
        settings=settings.by_part(tmp_path / "rendered")["exporter"],
    )


def row(stack: StandInStack) -> list[str]:
    stack.status()
    return next(line for line in stack.said if line.startswith("exporter ")).split()


def replace(file: Path, text: str) -> None:
    fresh = file.with_name(".new")
    fresh.write_text(text)
    fresh.replace(file)


def test_up_waits_until_the_exporter_runs_its_new_settings(
    stack: StandInStack, exporter: Part, file: Path
) -> None:
    assert stack.up(exporter) == 0
    pid = row(stack)[2]
    assert "current" in row(stack)

    replace(file, '{"raw_limit": 41}')

    assert stack.up(exporter) == 0
    assert "exporter runs with the current settings" in stack.words
    assert row(stack)[2:6:3] == [pid, "current"]


def test_the_exporter_is_left_alone_when_its_settings_are_as_they_were(
    stack: StandInStack, exporter: Part
) -> None:
    stack.up(exporter)

    assert stack.up(exporter) == 0
    assert "exporter runs with the current settings" in stack.words
    assert "restarting" not in stack.place.log("exporter").read_text()
    assert row(stack)[4] == "0"


def test_settings_that_the_exporter_cannot_use_fail_up_and_show_in_status(
    stack: StandInStack, exporter: Part, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwatch.deploy.native.commands._RELOAD_SECONDS", 2)
    stack.up(exporter)

    replace(file, '{"hold": "never"}')

    assert stack.up(exporter) == 1
    assert "exporter refused its settings: see" in stack.words
    assert stack.status() == 1
    assert "exporter runs with outdated settings" in stack.words

"""Settings from a file: read at the start, and heeded again when the file is replaced."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from threading import Event, Timer

import pytest

from exporter.runs import __main__ as module
from exporter.settings import SettingsFile
from tests.exporter.lines import append, measured, verl_json
from tests.exporter.test_main import Exporter
from tests.real import free_port

SHORT = "STEPWATCH_SILENCE=0.5\nSTEPWATCH_SILENCE_INTERVALS=1\nSTEPWATCH_FORGET_AFTER=0.5\n"
"""What has been silent for half a second is forgotten."""


def replace(path: Path, text: str) -> None:
    """As `generate.py` does: another file takes the place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return tmp_path / "runs.env"


def test_lines_are_names_and_values_and_comments_are_left_out(file):
    file.write_text("# STEPWATCH_HOLD=1\nSTEPWATCH_HOLD = 15.0\n\nSTEPWATCH_PATH=a=b\n")
    assert SettingsFile(file).values() == {"STEPWATCH_HOLD": "15.0", "STEPWATCH_PATH": "a=b"}


def test_a_missing_file_holds_nothing_until_it_comes(file):
    settings = SettingsFile(file)
    assert settings.values() == {}
    assert not settings.changed()
    file.write_text("STEPWATCH_HOLD=3\n")
    assert settings.changed()
    assert settings.values() == {"STEPWATCH_HOLD": "3"}
    assert not settings.changed()


def test_no_file_is_named_without_the_variable(monkeypatch):
    monkeypatch.delenv("STEPWATCH_SETTINGS", raising=False)
    assert SettingsFile.named().values() == {}


@pytest.fixture(name="exporter")
def _exporter(tmp_path, file):
    file.write_text("STEPWATCH_FORGET_AFTER=40000\n")
    (tmp_path / "runs").mkdir()
    append(tmp_path / "runs" / "a.jsonl", *(verl_json(step, measured(step)) for step in range(1, 6)))
    exporter = Exporter(
        STEPWATCH_SETTINGS=str(file), STEPWATCH_PATH=str(tmp_path / "runs"), STEPWATCH_STATE_DIR=str(tmp_path)
    )
    exporter.until(lambda scrape: scrape.value("rl_step", run="a") == 5)
    yield exporter
    if exporter.process.poll() is None:
        exporter.end()


def test_new_settings_are_taken_over_by_the_same_process(exporter, file):
    replace(file, SHORT)
    exporter.until(lambda scrape: scrape.samples and scrape.value("rl_step", run="a") is None)
    code, out, _ = exporter.end()
    assert code == 0
    assert "New settings: starting again" in out


def test_settings_that_cannot_be_used_change_nothing(exporter, file):
    replace(file, "STEPWATCH_FORGET_AFTER=soon\n")
    told = iter(exporter.process.stderr.readline, f"{file} cannot be used; the old settings stay.\n")
    assert "variable STEPWATCH_FORGET_AFTER: 'soon' is no positive number" in "".join(told)
    assert exporter.scrape().value("rl_step", run="a") == 5
    assert exporter.process.poll() is None
    replace(file, SHORT)
    exporter.until(lambda scrape: scrape.samples and scrape.value("rl_step", run="a") is None)


def test_the_environment_stands_above_the_file(tmp_path, file):
    port = os.environ.get("STEPWATCH_PORT")
    assert port is None  # or the next line would test nothing
    file.write_text("STEPWATCH_PORT=1\n")
    exporter = Exporter(STEPWATCH_SETTINGS=str(file), STEPWATCH_PATH=str(tmp_path))
    exporter.until(lambda scrape: bool(scrape.samples))
    exporter.end()


class StartsAgainError(Exception):
    """In place of the new process."""


def test_nothing_is_taken_any_more_once_it_was_saved(tmp_path, file, monkeypatch):
    monkeypatch.setenv("STEPWATCH_SETTINGS", str(file))
    monkeypatch.setattr(module, "stopped_by_signal", Event)
    port = free_port()

    def start_again():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        raise StartsAgainError

    monkeypatch.setattr(module, "_start_again", start_again)
    change = Timer(0.5, replace, (file, "STEPWATCH_HOLD=3\n"))
    change.start()
    with pytest.raises(StartsAgainError):
        module.main([f"--path={tmp_path}", f"--port={port}"])
    change.join()

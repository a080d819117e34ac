"""Settings from a file: read at the start, and heeded again when the file is replaced."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Timer

import pytest

from exporter.logging_setup import FORMATS, LEVELS
from exporter.runs import __main__ as module
from exporter.runs.cli import command_line
from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.exporters import FOLDER, documents
from stepwatch.render.generator import Place, containers
from tests.real import free_port
from tests.records import records
from tests.runs.lines import append, measured, verl_json
from tests.runs.test_main import Exporter

SHORT = {"silence": 0.5, "silence_intervals": 1, "forget_after": 0.5}
"""What has been silent for half a second is forgotten."""


def replace(path: Path, settings: Mapping[str, object]) -> None:
    """As `generate.py` does: another file takes the place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(settings))
    fresh.replace(path)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return tmp_path / "runs.json"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"hold": 15,}', "invalid JSON in line 1 ("),
        (b"hold: 15\n", "invalid JSON in line 1 ("),
        (b'{"hold": "\xff"}', "invalid JSON. Expected a mapping such as "),
        (b"[" * 100_000, "invalid JSON. Expected a mapping such as "),
        (b'["hold"]', "not a mapping. Expected one such as "),
        (b'{"hold": %s}' % (b"1" * 5000), "invalid JSON. Expected a mapping such as "),
        (b" " * (4 * 1024 * 1024 + 1), "larger than 4 MiB. Expected a file of settings. "),
        (b'{"holds": 15}', "holds: unknown key. Expected one of actions_url, "),
        (b'{"hold": "soon"}', "hold: 'soon' is not a positive number. Expected one such as 15 or 0.5. "),
        (b'{"hold": true}', "hold: True is not a positive number. "),
        (b'{"hold": %s}' % (b"1" * 400), f"hold: {'1' * 400} is not a positive number. "),
        (b'{"silence_intervals": -1}', "silence_intervals: -1 is not a number of 0 or more. "),
        (b'{"port": 0}', "port: 0 is not a port. Expected a number from 1 to 65535. "),
        (b'{"raw_limit": 1.5}', "raw_limit: 1.5 is not a whole number. "),
        (b'{"hosts": "a, b", "listen": 1}', "listen: 1 is not text. Expected text in quotes. "),
        (b'{"state_dir": 1}', "state_dir: 1 is not text. Expected text in quotes. "),
        (b'{"path": "./runs"}', "path: './runs' is not a list. Expected a list. "),
        (b'{"hosts": [1]}', "hosts: [1] is not a list of names. "),
        (b'{"raw_allow": [1]}', "raw_allow: [1] is not a list of texts. "),
        (b'{"signals": {"cost": ["a"]}}', "signals: 'cost' is not a signal. "),
        (b'{"overrides": [{"runs": "a", "limits": {"KL": {"enabled": "no"}}}]}', "overrides: {'runs': 'a', "),
        (b'{"alerting": {"level": 1}}', "alerting: 'level' is not a setting. "),
        (b'{"alerting": {"enabled": "no"}}', "alerting: enabled: 'no' has another type. "),
        (b'{"alerting": {"rules_interval": 0}}', "alerting: 0 is not a positive number. "),
        (b'{"pages": [{"url": 5}]}', "pages: "),
        (b'{"pages": [{"ulr": "http://me:hunter2@h/"}]}', "pages: "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_file_key_value_and_fix(
    file: Path, content: bytes, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(content)
    with pytest.raises(SystemExit) as refused:
        command_line([f"--config.file={file}"]).options()

    said = capsys.readouterr().err
    assert refused.value.code == 2
    assert said.startswith(f"{file}: {problem}")
    assert " Expected " in said
    assert said.endswith(" Fix: correct the file; if generate.py wrote it, run python generate.py.\n")
    assert "hunter2" not in said


def test_a_missing_file_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line([f"--config.file={file}"]).options()

    said = capsys.readouterr().err
    assert said.startswith(f"{file}: cannot be read (No such file or directory). Expected ")


def test_a_shortened_flag_is_refused_and_names_no_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command_line([f"--config={file}"]).options()

    assert f"unrecognized arguments: --config={file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alerts": {"Stalled": {"intervals": 0, "silence": "1ms"}}, "runs": {"forget_after": "1ms"}},
        {"runs": {"raw": {"allow": [], "limit": 0}}, "intervals": {"runs": "1ms"}},
        {"discovery": {"allow": [], "ray": None, "files": []}, "alerts": {"EngineGone": {"for": "1h"}}},
        {"alerts": {"Stalled": {"intervals": 1e300}}, "signals": {"reward": ["a"]}},
        *({"log": {"level": level}} for level in LEVELS),
        *({"log": {"format": form}} for form in FORMATS),
    ],
)
@pytest.mark.parametrize("place", [OnThisMachine, containers])
def test_what_config_yaml_may_hold_the_exporter_takes(
    settings: dict[str, object], place: Place, file: Path
) -> None:
    config = Config.model_validate(settings)
    file.write_bytes(documents(config, place(config))[FOLDER / file.name])

    intervals = config.alerts.block("Stalled").intervals
    assert command_line([f"--config.file={file}"]).options().silence_intervals == intervals


def test_a_file_that_is_removed_leaves_the_running_settings_until_another_one_comes(file: Path) -> None:
    replace(file, {"hold": 3})
    settings = command_line([f"--config.file={file}"])
    assert settings.options().hold == 3
    assert not settings.changed()
    file.unlink()
    assert settings.changed()
    assert settings.renewed() is None
    assert not settings.changed()
    replace(file, {"hold": 4})
    assert settings.changed()
    assert vars(settings.renewed() or {})["hold"] == 4
    assert not settings.changed()


@pytest.fixture(name="exporter")
def _exporter(tmp_path, file):
    replace(file, {"forget_after": 40000})
    (tmp_path / "runs").mkdir()
    append(tmp_path / "runs" / "a.jsonl", *(verl_json(step, measured(step)) for step in range(1, 6)))
    exporter = Exporter("--config.file", file, "--path", tmp_path / "runs", "--state-dir", tmp_path)
    exporter.until(lambda scrape: scrape.value("rl_step", run="a") == 5)
    yield exporter
    if exporter.process.poll() is None:
        exporter.end()


def test_new_settings_are_taken_over_by_the_same_process(exporter, file):
    replace(file, SHORT)
    exporter.until(lambda scrape: scrape.samples and scrape.value("rl_step", run="a") is None)
    code, out, _ = exporter.end()
    assert code == 0
    assert "New settings: restarting" in out


def test_an_exporter_that_is_stopped_while_its_settings_change_does_not_start_again(exporter, file):
    replace(file, SHORT)
    exporter.process.terminate()
    code, out, _ = exporter.end()
    assert code == 0
    assert "restarting" not in out


def test_settings_that_cannot_be_used_change_nothing(exporter, file):
    replace(file, {"forget_after": "soon"})
    lines = iter(exporter.process.stderr.readline, "")
    said = next(text for line in lines if (text := records(line)[0]["message"]).startswith(f"{file}: "))
    assert "forget_after: 'soon' is not a positive number. Expected one such as 15 or 0.5. Fix: " in said
    assert said.endswith("The running settings stay in effect.")
    assert exporter.scrape().value("rl_step", run="a") == 5
    assert exporter.process.poll() is None
    replace(file, SHORT)
    exporter.until(lambda scrape: scrape.samples and scrape.value("rl_step", run="a") is None)


class StartsAgainError(Exception):
    """In place of the new process."""


def test_nothing_is_taken_any_more_once_it_was_saved(tmp_path, file, monkeypatch):
    replace(file, {})
    monkeypatch.setattr(module, "stopped_by_signal", Event)
    monkeypatch.setattr(module.logging_setup, "configure", lambda *_: None)  # of this process
    port = free_port()

    def start_again(*_):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        raise StartsAgainError

    monkeypatch.setattr(module, "start_again", start_again)
    change = Timer(0.5, replace, (file, {"hold": 3}))
    change.start()
    with pytest.raises(StartsAgainError):
        module.main([f"--config.file={file}", f"--path={tmp_path}", f"--port={port}"])
    change.join()

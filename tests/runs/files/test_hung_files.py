"""Files other than logs on a file system that hangs: the token, the settings, Ray's list of targets."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.runs.__main__ import _changed
from exporter.runs.cli import command_line
from exporter.runs.files.mounts import PATIENCE_SECONDS, Mount
from exporter.runs.targets.files import RAY_LIST, ListFiles
from exporter.runs.targets.registrations import RefusedError, Token
from exporter.runs.targets.target import Allowed, Allowlist
from tests.real import hung_mount
from tests.real.waiting import eventually, in_time


@pytest.fixture(name="mount")
def _mount(tmp_path: Path) -> Iterator[hung_mount.Mount]:
    with hung_mount.mounted(tmp_path / "nfs") as mount:
        yield mount


def soon(work: Callable[[], object]) -> None:
    """Run it; it waits no longer than for a slow disk."""
    began = time.monotonic()
    work()
    assert in_time(time.monotonic() - began, PATIENCE_SECONDS + 1)


def lets_in(token: Token, shown: dict[str, str]) -> bool:
    with suppress(RefusedError):
        token.require(shown)
        return True
    return False


def test_a_token_that_cannot_be_read_admits_no_one_and_delays_no_request(
    mount: hung_mount.Mount, logged: list[str]
) -> None:
    file = mount.behind / "token"
    file.write_text("open:sesame\n")
    file.chmod(0o600)
    token = Token(mount.folder / "token")
    shown = {"authorization": "Bearer open:sesame"}
    token.require(shown)
    mount.hang()

    def refused() -> None:
        with pytest.raises(RefusedError) as error:
            token.require(shown)
        assert error.value.status == "503 Service Unavailable"

    soon(refused)
    assert "does not answer" in logged[-1]
    mount.come_back()
    eventually(lambda: lets_in(token, shown))


def test_settings_that_cannot_be_read_stay_as_they_are_and_are_read_later(mount: hung_mount.Mount) -> None:
    (mount.behind / "runs.json").write_text('{"hold": 1}')
    settings, thread = command_line([f"--config.file={mount.folder / 'runs.json'}"]), Mount("settings")
    assert settings.options().hold == 1
    mount.hang()
    (mount.behind / "new").write_text('{"hold": 2}')
    os.replace(mount.behind / "new", mount.behind / "runs.json")  # noqa: PTH105
    soon(lambda: _changed(settings, thread))
    assert not _changed(settings, thread)
    mount.come_back()
    eventually(lambda: _changed(settings, thread))


def test_targets_of_a_list_that_cannot_be_read_are_the_last_known(mount: hung_mount.Mount) -> None:
    file = mount.behind / "list.json"
    file.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": ["10.0.0.7:43517"]}]))
    source = ListFiles(RAY_LIST, [str(mount.folder / "list.json")], Allowlist(Allowed()), Path("/"))
    known = [target.address for target in source.targets()]
    assert known == ["10.0.0.7:43517"]
    mount.hang()
    soon(source.targets)
    assert [target.address for target in source.targets()] == known
    eventually(lambda: source.targets() and source.thread.hangs)
    mount.come_back()
    eventually(lambda: source.targets() and not source.thread.hangs)

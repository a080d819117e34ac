"""Once there is room on a full disk, the watchdog has supervisord start what died on it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from exporter.watchdog.servers import Supervisor
from stepwatch.deploy.native import supervisord
from tests.native.conftest import StandInStack
from tests.real.waiting import eventually


def test_a_part_that_waits_for_its_next_try_is_started_at_once_and_one_that_runs_is_left_alone(
    stack: StandInStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("fatal")
    stack.up(stack.part("well"), stack.part("died", settings=settings))
    monkeypatch.chdir(stack.place.folder)
    supervisor = Supervisor(stack.place.socket.name)

    def states() -> dict[str, str]:
        with supervisord.connected(stack.place) as server:
            assert server is not None
            return {name: report.state for name, report in server.reports().items()}

    eventually(lambda: states()["died"] == "BACKOFF")
    settings.write_text("good")
    begun = time.monotonic()
    eventually(lambda: supervisor.start("died") or states()["died"] in ("STARTING", "RUNNING"))
    eventually(lambda: states()["died"] == "RUNNING")
    assert time.monotonic() - begun < 60
    assert not supervisor.start("well")
    assert not supervisor.start("unknown")
    assert not Supervisor(None).start("died")

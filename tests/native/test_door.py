"""The door of a stack of plain processes, as `make up` starts it."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.door import backend_access
from stepwatch.deploy.native.state import State
from stepwatch.system import http_client
from tests.door.conftest import ask
from tests.native.installation import MAINLY_NEWEST, Installation, made, python_module
from tests.real import Received, WebhookSink
from tests.real.waiting import eventually
from tests.runs.lines import append, measured, verl_json

pytestmark = pytest.mark.e2e


@pytest.fixture(name="installation", params=MAINLY_NEWEST)
def _installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, request.param)
    yield installation
    installation.run("down")


def door(installation: Installation) -> int:
    (found,) = (pid for pid in installation.pids() if python_module(pid) == "exporter.door")
    return found


def test_commands_work_through_it_and_alerts_without_it(installation: Installation) -> None:
    with WebhookSink() as sink:
        installation.configure(
            f"receivers: [{{name: sink, webhook: {{url: '{sink.url}'}}}}]\n"
            "intervals: {scrape: 1s, stack_rules: 1s}\nalerts: {TargetDown: {for: 0s}}\n"
        )
        log = installation.folder / "my runs" / "a.jsonl"
        log.parent.mkdir()
        append(log, *(verl_json(step, measured(step)) for step in range(9)))
        done = installation.up()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "door is ready" in done.stdout

        done = installation.run("test-alert", "sink", "--config", str(installation.config))
        assert done.returncode == 0, done.stdout + done.stderr
        assert sink.summary()[0].startswith("firing TestAlert")
        eventually(lambda: "1 running" in installation.run("status").stdout)
        done = installation.run("silence", "a", "--config", str(installation.config))
        assert done.returncode == 0, done.stdout + done.stderr
        silences = json.loads(http_client.read(f"{installation.url('alertmanager')}/api/v2/silences") or "[]")
        assert [each["matchers"][0]["value"] for each in silences] == ["a"]

        os.kill(door(installation), signal.SIGSTOP)

        sink.wait_for(lambda message: _reports_the_door(message, installation))
        status = installation.run("status")
        assert status.returncode == 1
        states = {line.split()[0]: line.split()[1:3] for line in status.stdout.splitlines() if line.strip()}
        assert (states["prometheus"][0], states["alertmanager"][0]) == ("up", "up")
        assert states["door"][0] == "suspended"

        os.kill(door(installation), signal.SIGKILL)
        eventually(lambda: installation.run("status").returncode == 0)


def _reports_the_door(message: Received, installation: Installation) -> bool:
    door = {"alertname": "TargetDown", "instance": f"127.0.0.1:{installation.ports['prometheus']}"}
    return any(door.items() <= alert["labels"].items() for alert in message.alerts)


def test_the_password_is_the_owners_alone_and_stands_nowhere_else(installation: Installation) -> None:
    assert installation.up().returncode == 0
    place = State(installation.state)
    password = place.backend_password.read_bytes()

    assert len(password) == 43
    for name in ("prometheus_backend", "alertmanager_backend"):
        address = f"127.0.0.1:{installation.ports[name]}"
        assert ask(address, "/-/ready").status == 401
        login = backend_access.authorization(place.backend_password)
        assert ask(address, "/-/ready", Authorization=login).status == 200
    assert {stat.S_IMODE(file.stat().st_mode) for file in place.backend.iterdir()} == {0o600}
    holders = [
        file for file in installation.folder.rglob("*") if file.is_file() and password in file.read_bytes()
    ]
    assert holders == [place.backend_password]
    for pid in installation.pids():
        assert password not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert password not in Path(f"/proc/{pid}/environ").read_bytes()

    assert installation.run("down").returncode == 0
    assert installation.up().returncode == 0
    assert place.backend_password.read_bytes() == password


def test_a_lost_password_is_recreated_by_up(installation: Installation) -> None:
    assert installation.up().returncode == 0
    place = State(installation.state)
    (place.backend / backend_access.WEB).unlink()

    done = installation.up()

    assert done.returncode == 0, done.stdout + done.stderr
    assert installation.run("status").returncode == 0
    assert http_client.read(f"{installation.url('alertmanager')}/api/v2/silences") is not None

"""The passwords of a stack of plain processes, as `make up` starts it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from exporter.credentials import PEOPLE, WEB
from stepwatch.deploy.native.state import State
from stepwatch.system import http_client
from tests.native.installation import Installation
from tests.real import WebhookSink
from tests.real.asking import ask
from tests.real.credentials import login
from tests.real.waiting import eventually
from tests.runs.lines import append, measured, verl_json

pytestmark = pytest.mark.e2e


def test_commands_and_services_sign_in_by_themselves(installation: Installation) -> None:
    with WebhookSink() as sink:
        installation.configure(f"receivers: [{{name: sink, webhook: {{url: '{sink.url}'}}}}]\n")
        log = installation.folder / "my runs" / "a.jsonl"
        log.parent.mkdir()
        append(log, *(verl_json(step, measured(step)) for step in range(9)))
        done = installation.up()
        assert done.returncode == 0, done.stdout + done.stderr
        place = State(installation.state)
        assert f"as {PEOPLE}, to Grafana as admin; password: {place.password}\n" in done.stdout
        assert "Grafana reads it at its first start only" in done.stdout

        done = installation.run("test-alert", "sink", "--config", str(installation.config))
        assert done.returncode == 0, done.stdout + done.stderr
        assert sink.summary()[0].startswith("firing TestAlert")
        eventually(lambda: "1 running" in installation.run("status").stdout)
        assert str(place.password) in installation.run("status").stdout
        done = installation.run("silence", "a", "--config", str(installation.config))
        assert done.returncode == 0, done.stdout + done.stderr
        silences = json.loads(http_client.read(f"{installation.url('alertmanager')}/api/v2/silences") or "[]")
        assert [each["matchers"][0]["value"] for each in silences] == ["a"]
        done = installation.run("evidence", "a", "--config", str(installation.config))
        assert done.returncode == 0, done.stdout + done.stderr
        page = json.loads(http_client.read(f"{installation.url('exporter')}/api/v1/runs") or "{}")
        assert page["prometheus"] == ""


def test_the_passwords_are_the_owners_alone_and_stand_nowhere_else(installation: Installation) -> None:
    assert installation.up().returncode == 0
    place = State(installation.state)
    passwords = [file.read_bytes() for file in (place.password, place.internal_password)]

    for name in ("prometheus", "alertmanager"):
        address = f"127.0.0.1:{installation.ports[name]}"
        assert ask(address, "/-/ready").status == 401
        assert ask(address, "/-/ready", **login(place.credentials)).status == 200
        assert ask(address, "/-/ready", **login(place.credentials, PEOPLE)).status == 200
    assert {stat.S_IMODE(file.stat().st_mode) for file in place.credentials.iterdir()} == {0o600}
    files = [file for file in installation.folder.rglob("*") if file.is_file()]
    for password in passwords:
        holders = [file.name for file in files if password in file.read_bytes()]
        assert len(holders) == 1, holders
        for pid in installation.pids():
            assert password not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert password not in Path(f"/proc/{pid}/environ").read_bytes()

    assert installation.run("down").returncode == 0
    assert installation.up().returncode == 0
    assert [file.read_bytes() for file in (place.password, place.internal_password)] == passwords


def test_lost_credentials_are_recreated_by_up(installation: Installation) -> None:
    assert installation.up().returncode == 0
    place = State(installation.state)
    (place.credentials / WEB).unlink()

    done = installation.up()

    assert done.returncode == 0, done.stdout + done.stderr
    assert installation.run("status").returncode == 0
    assert http_client.read(f"{installation.url('alertmanager')}/api/v2/silences") is not None

"""The circuit breaker comes with its policies in config.yaml, and goes with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.native.installation import Installation, made

pytestmark = pytest.mark.e2e

POLICY = "policies: [{on: KLExplosion, do: [evidence, notify, stop]}]"
RECEIVER = 'receivers: [{name: a, webhook: {url: "http://127.0.0.1:1/"}}]\n'


@pytest.fixture(name="installation")
def _installation(tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, "newest")
    yield installation
    installation.run("down")


def _applied(installation: Installation, actions: str) -> str:
    installation.configure(RECEIVER + actions)
    done = installation.up()
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _shown(installation: Installation) -> list[str]:
    """What `make status` says of it: the words of its line."""
    status = installation.run("status")
    assert status.returncode == 0, status.stdout
    return next((line.split() for line in status.stdout.splitlines() if line.split()[:1] == ["actions"]), [])


def test_it_is_switched_on_made_to_act_stopped_and_switched_off_by_up_alone(
    installation: Installation,
) -> None:
    said = _applied(installation, "")
    before = installation.parts()
    assert "actions" not in said
    assert (_shown(installation), http_client.read(installation.url("actions"))) == ([], None)
    command = ("actions", "--config", str(installation.config))
    off = installation.run(*command)
    assert (off.returncode, "Traceback" in off.stderr) == (2, False)
    print(off.stderr)

    said = _applied(installation, f"actions: {{{POLICY}}}\n")
    assert "actions is ready" in said
    assert "(dry run)" in said
    assert installation.url("actions") in said
    assert _shown(installation)[1] == "up"
    assert len(installation.parts() - before) == 1
    assert before <= installation.parts()
    assert _state(installation)["dry_run"] is True

    _applied(installation, f"actions: {{dry_run: false, {POLICY}}}\n")
    assert _state(installation)["dry_run"] is False
    assert len(installation.parts() - before) == 1

    assert installation.run(*command, "--kill-switch=on").returncode == 0
    assert "The kill switch is on" in installation.run(*command).stdout
    assert _state(installation)["off"] is True
    assert installation.run(*command, "--kill-switch=off").returncode == 0
    assert _state(installation)["off"] is False

    said = _applied(installation, "")
    assert installation.parts() == before
    assert (_shown(installation), http_client.read(installation.url("actions"))) == ([], None)
    assert (installation.state / "data/actions/audit.jsonl").exists()


def _state(installation: Installation) -> dict[str, object]:
    page = http_client.read(f"{installation.url('actions')}/api/v1/actions")
    assert page is not None
    found: dict[str, object] = json.loads(page)
    return found

"""Damaged files in the volume of a container, on a real Docker Engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwatch.services import lifecycle
from tests.compose.checkout import Checkout

pytestmark = [pytest.mark.e2e, pytest.mark.world]


@pytest.fixture(name="running")
def _running(checkout: Checkout) -> Iterator[Checkout]:
    done = checkout.stepwatch("up")
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield checkout
    finally:
        checkout.run("docker", "compose", "down", "--volumes", "--timeout=5")


def test_a_damaged_file_in_a_volume_is_named_and_moved_aside_on_request(running: Checkout) -> None:
    shell = ("run", "--rm", "--no-deps", "-T", "--entrypoint=sh", "alertmanager", "-c")
    running.compose("stop", "alertmanager")
    running.compose(*shell, "echo xxxxxxxx > /alertmanager/nflog")

    done = running.stepwatch("up")

    assert done.returncode == 1
    named = "the volume alertmanager-data: /alertmanager/nflog is damaged (unexpected EOF)"
    assert named in done.stdout
    status = running.stepwatch("status")
    assert status.returncode == 1
    assert named in status.stdout

    done = running.stepwatch("up", "--repair")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Moved the volume alertmanager-data: /alertmanager/nflog to /alertmanager/damaged/" in done.stdout
    assert running.compose(*shell, "cat /alertmanager/damaged/*/nflog") == "xxxxxxxx\n"
    done = running.stepwatch("up", "--repair")
    assert done.returncode == 0
    assert lifecycle.NO_DAMAGE in done.stdout

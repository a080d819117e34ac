"""`make up` ends, and says why, when a container dies again and again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.checkout import Checkout
from tests.real.docker import Docker
from tests.real.waiting import in_time


@pytest.fixture(name="checkout")
def _checkout(docker: Docker, tmp_path: Path) -> Iterator[Checkout]:
    checkout = Checkout(tmp_path / "stepwatch", docker)
    yield checkout
    checkout.run("docker", "compose", "down", "--volumes", "--timeout=5")


@pytest.mark.e2e
@pytest.mark.world
def test_up_gives_up_on_a_container_that_dies_again_and_again(checkout: Checkout) -> None:
    file = checkout.folder / "compose.yaml"
    text = file.read_text()
    assert "--path.rootfs=/host" in text
    file.write_text(text.replace("--path.rootfs=/host", "--no-such-flag"))
    begun = time.monotonic()

    done = checkout.stepwatch("up")

    assert done.returncode == 1, done.stdout + done.stderr
    assert in_time(time.monotonic() - begun, 100)
    assert "node failed: it ended 3 times while it started" in done.stdout
    assert "`docker compose logs node`, ends with:" in done.stdout
    assert "no-such-flag" in done.stdout
    assert "Fix: " in done.stdout
    assert re.fullmatch(r"1 of \d+ parts failed: node", done.stdout.splitlines()[-1])
    assert "prometheus is ready" in done.stdout

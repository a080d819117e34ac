"""The block of ours in .env: read by the real Compose, and kept apart from what is the user's."""

from __future__ import annotations

import json
import subprocess

import pytest

from stepwatch.render import variables
from tests.real.docker import Client

COMPOSE = """
services:
  a:
    image: none
    environment:
      PATHS: ${STEPWATCH_PATH:-default}
      OTHER: ${OTHER:-default}
"""


@pytest.fixture(scope="module", name="client")
def _client():
    with Client() as client:
        yield client


@pytest.fixture(name="read")
def _read(client, tmp_path):
    """What Compose makes of the file."""
    (tmp_path / "compose.yaml").write_text(COMPOSE)

    def read() -> dict[str, str]:
        done = subprocess.run(
            ["docker", "compose", "config", "--format=json"],
            cwd=tmp_path,
            env=client.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)["services"]["a"]["environment"]

    return read


@pytest.mark.parametrize(
    "value",
    [
        "/plain/path",
        "/with space/and#hash",
        "/it's",
        '/a"quote',
        "/a$dollar",
        "/both'\"$x\\y",
        "",
        "/ünicode",
    ],
)
def test_compose_reads_each_value_back_unchanged(tmp_path, read, value):
    variables.update(tmp_path / ".env", {"STEPWATCH_PATH": value})
    assert read()["PATHS"].replace("$$", "$") == (value or "default")


def test_what_is_the_users_stays_and_counts_more(tmp_path, read):
    file = tmp_path / ".env"
    file.write_text("OTHER=mine\nSTEPWATCH_PATH=/mine\n")
    variables.update(file, {"STEPWATCH_PATH": "/ours", "STEPWATCH_LISTEN": "127.0.0.1"})
    assert file.read_text().startswith("OTHER=mine\nSTEPWATCH_PATH=/mine\n# Stepwatch")
    assert read() == {"PATHS": "/mine", "OTHER": "mine"}


def test_what_is_not_named_again_stays_and_the_rest_is_replaced(tmp_path):
    file = tmp_path / ".env"
    variables.update(file, {"STEPWATCH_PATH": "/a b", "STEPWATCH_GPU_PORT": "1"})
    variables.update(file, {"STEPWATCH_GPU_PORT": "2"})
    file.write_text(file.read_text() + "MINE=1\n")
    variables.update(file, {"STEPWATCH_GPU_PORT": "3"})
    lines = file.read_text().splitlines()
    assert sorted(line for line in lines if not line.startswith("#")) == [
        "MINE=1",
        "STEPWATCH_GPU_PORT=3",
        "STEPWATCH_PATH='/a b'",
    ]

"""What config.yaml says of registrations, as the exporter reads it natively and in a container."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from exporter.runs import cli
from stepwatch.config.deployment import InContainers, OnThisMachine
from stepwatch.render.generator import generate
from stepwatch.schema.errors import Refused

NATIVE = partial(OnThisMachine, parts=frozenset({"exporter", "prometheus", "alertmanager"}))


@pytest.fixture(name="token")
def _token(tmp_path: Path) -> Path:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    token = secrets / "register"
    token.write_text("opensesame\n")
    token.chmod(0o644)
    config = "discovery: {token_file: secrets/register}\nports: {prometheus: 9290, grafana: 3300}\n"
    (tmp_path / "config.yaml").write_text(config)
    return token


def reported(folder: Path) -> dict[str, object]:
    """What the exporter takes from the settings that were rendered."""
    file = folder / "exporter/generated/runs.json"
    assert "opensesame" not in file.read_text()
    options = cli.command_line([f"--config.file={file}"]).options()
    return {name: getattr(options, name) for name in ("token_file", "prometheus_port", "grafana_port")}


def test_natively_the_file_is_read_where_it_lies(token: Path, tmp_path: Path) -> None:
    generate(tmp_path / "config.yaml", tmp_path, place=NATIVE)

    assert reported(tmp_path) == {"token_file": token, "prometheus_port": 9290, "grafana_port": None}


def test_in_containers_it_is_read_where_secrets_are_mounted(token: Path, tmp_path: Path) -> None:
    place = lambda _: InContainers({token.parent: "/etc/stepwatch/secrets"})  # noqa: E731
    generate(tmp_path / "config.yaml", tmp_path, place=place)

    seen = Path("/etc/stepwatch/secrets/register")
    assert reported(tmp_path) == {"token_file": seen, "prometheus_port": 9290, "grafana_port": 3300}


def test_a_file_that_no_container_may_read_is_refused_with_the_fix(token: Path, tmp_path: Path) -> None:
    token.chmod(0o600)
    place = lambda _: InContainers({token.parent: "/etc/stepwatch/secrets"})  # noqa: E731

    with pytest.raises(Refused, match=f"chmod 640 {token}"):
        generate(tmp_path / "config.yaml", tmp_path, place=place)

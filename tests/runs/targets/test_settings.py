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


def test_the_token_is_read_where_it_lies_or_where_secrets_are_mounted(token: Path, tmp_path: Path) -> None:
    def contained(_: object) -> InContainers:
        return InContainers({token.parent: "/etc/stepwatch/secrets"})

    generate(tmp_path / "config.yaml", tmp_path, place=NATIVE)
    assert reported(tmp_path) == {"token_file": token, "prometheus_port": 9290, "grafana_port": None}
    generate(tmp_path / "config.yaml", tmp_path, place=contained)
    seen = Path("/etc/stepwatch/secrets/register")
    assert reported(tmp_path) == {"token_file": seen, "prometheus_port": 9290, "grafana_port": 3300}
    token.chmod(0o600)
    with pytest.raises(Refused, match=f"chmod 640 {token}"):
        generate(tmp_path / "config.yaml", tmp_path, place=contained)

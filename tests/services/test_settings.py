"""When the files of a part last changed, by their times."""

from __future__ import annotations

from pathlib import Path

from stepwatch.render.generator import generate
from stepwatch.services import settings


def test_status_says_that_rules_are_evaluated_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("rules: none")
    said = generate(tmp_path / "config.yaml", tmp_path).warning or ""
    assert "No rules are evaluated here" in said
    assert "no alert fires" in said
    assert str(tmp_path / "prometheus/generated/rules") in settings.rules_elsewhere(tmp_path)

    (tmp_path / "config.yaml").write_text("rules: here")
    assert generate(tmp_path / "config.yaml", tmp_path).warning is None
    assert settings.rules_elsewhere(tmp_path) == ""
    assert settings.rules_elsewhere(tmp_path / "nothing") == ""

"""When the files of a part last changed, by their times."""

from __future__ import annotations

import os
from pathlib import Path

from stepwatch.render.generator import generate
from stepwatch.services import settings


def written(file: Path, at: float) -> None:
    """A file that was put in its place at a time, which its folder notes too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    for path in (file, file.parent):
        os.utime(path, (at, at))


def test_the_file_of_one_part_says_nothing_of_another_that_stands_beside_it(tmp_path: Path) -> None:
    written(tmp_path / "exporter/generated/gpu.json", 100)
    written(tmp_path / "exporter/generated/runs.json", 200)

    assert settings.by_part(tmp_path)["gpu"].changed() == 100
    assert settings.by_part(tmp_path)["exporter"].changed() == 200


def test_a_rule_file_that_was_removed_is_a_change(tmp_path: Path) -> None:
    rules = tmp_path / "prometheus/generated/rules"
    written(tmp_path / "prometheus/generated/prometheus.yml", 100)
    written(rules / "rl.yml", 100)
    written(rules / "old.yml", 100)
    assert settings.by_part(tmp_path)["prometheus"].changed() == 100
    (rules / "old.yml").unlink()
    os.utime(rules, (300, 300))

    assert settings.by_part(tmp_path)["prometheus"].changed() == 300


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

"""The logs in tests/logs: each is described, and none names the machine that it was made on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests" / "logs"
README = (LOGS / "README.md").read_text()
FILES = sorted(path for path in LOGS.rglob("*") if path.is_file() and path.parent != LOGS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LOGS)))
def test_each_log_is_described_and_names_no_path_of_its_machine(path: Path) -> None:
    name = path.relative_to(LOGS)
    content = path.read_bytes()

    assert any(f"`{place}`" in README for place in (name, *name.parents))
    assert not [own for own in (b"/root/", b"/home/", str(ROOT).encode()) if own in content]


def test_each_label_is_of_a_log() -> None:
    labels = yaml.safe_load((LOGS / "labels.yaml").read_text())

    assert [name for name in labels if not (LOGS / name).is_file()] == []

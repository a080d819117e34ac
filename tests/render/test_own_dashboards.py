"""Dashboards of a user's own: exported from Grafana to the folder beside config.yaml."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate, pending, rendered
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT

GENERATED = PurePosixPath("grafana/generated/dashboards")
MINE: dict[str, Any] = {
    "uid": "abc",
    "title": "Mine",
    "schemaVersion": 41,
    "id": 17,
    "panels": [{"type": "text", "options": {"content": "<% as it is %> {{run}}\r\n训练"}}],
}


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "stack"))
    for tool in ("PROMTOOL", "AMTOOL"):
        monkeypatch.setenv(f"STEPWATCH_{tool}", "/bin/true")
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "config.yaml").write_text("")
    return tmp_path / "config.yaml"


def put(config: Path, document: object, name: str = "mine.json") -> Path:
    file = config.with_name("dashboards") / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def test_an_exported_dashboard_is_there_beside_ours_as_it_was_exported(config: Path) -> None:
    put(config, MINE)

    files = rendered(config, CHECKOUT, OnThisMachine)
    shown = json.loads(files[GENERATED / "mine.json"])
    assert "config.yaml" in shown.pop("__generated")
    assert shown == MINE
    assert GENERATED / "runs.json" in files


def test_an_own_dashboard_is_pending_until_it_is_rendered_and_gone_without_its_file(config: Path) -> None:
    generate(config, config.parent, place=OnThisMachine)
    file = put(config, MINE)
    assert pending(config, config.parent, OnThisMachine) == (
        f"Dashboards were changed since they were rendered: `make up CONFIG={config}` shows them."
    )

    generate(config, config.parent, place=OnThisMachine)
    assert (config.parent / GENERATED / "mine.json").exists()
    assert pending(config, config.parent, OnThisMachine) is None

    file.unlink()
    generate(config, config.parent, place=OnThisMachine)
    assert not (config.parent / GENERATED / "mine.json").exists()


@pytest.mark.parametrize(
    ("name", "document", "said"),
    [
        ("runs.json", MINE, "a dashboard of Stepwatch has this "),
        (
            "b.json",
            {**MINE, "uid": "stepwatch-runs"},
            'uid: "stepwatch-runs" is already used by Stepwatch\'s',
        ),
        (
            "b.json",
            {**MINE, "title": "Runs"},
            'title: "Runs" is already used by Stepwatch',
        ),
        ("b.json", {**MINE, "title": "Other"}, 'title: "Other" is already used by {folder}/a.json. '),
        ("b.json", {"title": "b", "panels": []}, "not a dashboard with `uid`, `title` and "),
        (
            "b.json",
            {**MINE, "elements": {}, "panels": None},
            "not a dashboard with `uid`, `title` and ",
        ),
        ("b.json", {**MINE, "title": ""}, "not a dashboard with `uid`, `title` and "),
        ("b.json", [MINE], "not a dashboard with `uid`, `title` and "),
        (
            "b.json",
            {**MINE, "__inputs": [{"name": "DS"}]},
            "__inputs: asks for values that only an ",
        ),
        ("b.json", "{", "unexpected end of data: line 1 column 2 (char 1). Expected: "),
        ("b.json", '{"uid": NaN}', "unexpected character, expected a JSON value: line 1 column 9 (char 8). "),
        ("b.json", "[" * 100_000, "depth limit exceeded: "),
    ],
)
def test_what_grafana_would_not_load_is_refused_with_the_fix_before_anything_is_written(
    config: Path, name: str, document: object, said: str
) -> None:
    put(config, {**MINE, "uid": "other", "title": "Other"}, "a.json")
    file = put(config, document, name)

    with pytest.raises(Refused) as refusal:
        generate(config, config.with_name("out"), place=OnThisMachine)

    assert str(refusal.value).startswith(f"{file}: {said.format(folder=file.parent)}")
    assert "Fix: " in str(refusal.value)
    assert not config.with_name("out").exists()

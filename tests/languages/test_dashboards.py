"""Dashboards in Chinese: the same panels, queries and joins, with no English text left."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwatch.config import load
from stepwatch.config.deployment import InContainers
from stepwatch.languages import Catalogue, catalogue
from stepwatch.render.dashboard_texts import translated
from stepwatch.render.generator import render_all, rendered
from stepwatch.system.environment import CHECKOUT

Json = dict[str, Any]

FOLDER = "grafana/generated/dashboards"
SHOWN = {"title", "description", "legendFormat", "noValue", "text", "label", "titleFormat", "textFormat"}
"""Keys of Grafana's JSON whose values people read."""

ENGLISH = re.compile(r"[a-z]{3,} [a-z]{2,}")
HAN = re.compile("[\u3400-\u9fff]")


def dashboards(folder: Path, language: str) -> dict[str, Json]:
    config = folder / "config.yaml"
    config.write_text(f"language: {language}\n")
    files = render_all(load(config), CHECKOUT, lambda _: InContainers(), ["grafana"])
    return {path.name: json.loads(data) for path, data in files.items() if str(path.parent) == FOLDER}


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Json]]:
    folder = tmp_path_factory.mktemp("languages")
    return {language: dashboards(folder, language) for language in ("en", "zh")}


def headings(panel: Json) -> dict[str, str]:
    """The headings of a table's columns, by the names of their fields."""
    found = [each for each in panel.get("transformations", ()) if each["id"] == "organize"]
    renamed: dict[str, str] = found[0]["options"]["renameByName"] if found else {}
    return renamed


def by_fields(panel: Json) -> Json:
    """A panel that names columns by their fields wherever it names them by their headings."""
    panel = copy.deepcopy(panel)
    of = {heading: field for field, heading in headings(panel).items()}
    for override in panel["fieldConfig"]["overrides"]:
        which = override["matcher"]["options"]
        override["matcher"]["options"] = of.get(which, which)
    for step in panel["transformations"]:
        step["options"].pop("renameByName", None)
        for by in (*step["options"].get("sort", ()), *step["options"].get("filters", ())):
            (key,) = by.keys() & {"field", "fieldName"}
            by[key] = of.get(by[key], by[key])
    return panel


def without_texts(part: Any) -> Any:
    """A dashboard without what people read, so that two languages can be compared."""
    if isinstance(part, list):
        return [without_texts(item) for item in part]
    if not isinstance(part, dict):
        return part
    if "transformations" in part:
        part = by_fields(part)
    return {
        key: without_texts(value)
        for key, value in part.items()
        if not (key in SHOWN and isinstance(value, str)) and not (key == "name" and "useValueForTime" in part)
    }


def texts(part: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a dashboard, with the key that it stands under."""
    if isinstance(part, list):
        for item in part:
            yield from texts(item, key)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name != "renameByName":  # names of fields
                yield from texts(value, name)
    elif isinstance(part, str):
        yield key, part


def test_nothing_but_texts_differs(each: dict[str, dict[str, Json]]) -> None:
    assert without_texts(each["zh"]) == without_texts(each["en"])
    assert each["zh"] != each["en"]


def test_no_english_text_is_left(each: dict[str, dict[str, Json]]) -> None:
    of_programs = {"expr", "query", "definition", "__generated", "regex", "url", "options", "names"}
    of_programs |= {"field", "fieldName", "byField"}
    said = set(catalogue("zh").texts.values())
    left = [
        (key, text)
        for key, text in texts(each["zh"])
        if key not in of_programs and ENGLISH.search(text) and not HAN.search(text) and text not in said
    ]

    assert left == []


def test_a_text_after_its_code_is_translated_without_the_code() -> None:
    said = translated({"text": "46: the GPU stopped working"}, Catalogue({"the GPU stopped working": "坏了"}))

    assert said == {"text": "46: 坏了"}


def test_a_text_of_two_meanings_is_translated_for_its_dashboard(each: dict[str, dict[str, Json]]) -> None:
    assert {panel["title"] for panel in each["zh"]["nodes.json"]["panels"]} >= {"内存"}
    assert {panel["title"] for panel in each["zh"]["training.json"]["panels"]} >= {"显存"}
    assert catalogue("zh").within("host")("memory in use:") == "内存占用"


OWN = {
    "uid": "mine",
    "title": "Mine",
    "panels": [{"type": "text", "title": "Reward", "description": "Our own words."}],
}


def test_a_dashboard_of_the_users_own_stays_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards/mine.json").write_text(json.dumps(OWN))
    (tmp_path / "config.yaml").write_text("language: zh\n")

    files = rendered(tmp_path / "config.yaml", CHECKOUT, lambda _: InContainers())
    (found,) = [json.loads(data) for path, data in files.items() if path.name == "mine.json"]

    assert not HAN.search(json.dumps(found, ensure_ascii=False))
    assert found["panels"] == OWN["panels"]

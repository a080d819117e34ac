"""`python -m stepwatch import-dashboard`: what was edited in Grafana renders to the same dashboard."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.__main__ import main
from stepwatch.config.deployment import OnThisMachine
from stepwatch.operate import dashboard_import
from stepwatch.operate.dashboard_import import own, template
from stepwatch.render.generator import generate, pending, rendered
from stepwatch.render.templates import render_own
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT

Json = dict[str, Any]
Import = Callable[..., int]

OURS = {"type": "prometheus", "uid": "stepwatch-prometheus"}
GENERATED = PurePosixPath("grafana/generated/dashboards")
EDITED: Json = {"uid": "abc", "title": "Mine", "schemaVersion": 41, "panels": []}


def dashboards() -> list[Path]:
    return sorted((CHECKOUT / GENERATED).glob("*.json"))


def edited(dashboard: Json) -> Json:
    """As Grafana saves a dashboard: with what its database says of it."""
    panel = {**dashboard["panels"][0], "title": "After the <% edit %>"}
    return {
        **dashboard,
        "id": 17,
        "version": 3,
        "iteration": 1764000000000,
        "panels": [panel, *dashboard["panels"][1:]],
    }


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "stack"))
    config = tmp_path / "config.yaml"
    config.write_text("")
    return config


@pytest.fixture(name="bring")
def _bring(config: Path) -> Import:
    """Import a document, or a text, as a file."""

    def bring(document: Any, *words: str) -> int:
        file = config.with_name("export.json")
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return main(["import-dashboard", "--config", str(config), *words, "--", str(file)])

    return bring


def shown(config: Path) -> dict[str, Json]:
    """The rendered dashboards by their names, without the mark of generated files."""
    files = rendered(config, CHECKOUT, OnThisMachine)
    found = {path.stem: json.loads(text) for path, text in files.items() if path.parent == GENERATED}
    for each in found.values():
        del each["__generated"]
    return found


def without_names(dashboard: Json) -> Json:
    return {key: value for key, value in dashboard.items() if key not in {"uid", "title"}}


@pytest.mark.slow
def test_each_of_our_dashboards_once_edited_is_rendered_as_it_was_edited_beside_ours(
    config: Path, bring: Import, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {file.stem: json.loads(file.read_text()) for file in dashboards()}
    for source in sources.values():
        assert bring(edited(source)) == 0
    said = capsys.readouterr().out
    found = shown(config)

    assert len(sources) > 3
    for name, source in sources.items():
        mark = source.pop("__generated")
        assert name in mark
        wanted = {
            key: value for key, value in edited(source).items() if key not in ("id", "version", "iteration")
        }
        made = found[f"{name}-own"]
        assert without_names(made) == without_names(wanted)
        assert made["uid"] == f"{name}-own"
        assert made["title"] == f"{source['title']} (own)"
        assert f'dashboard "{made["title"]}", uid {made["uid"]}.' in said
        assert found[name] == source


@pytest.mark.parametrize(
    "wrapped",
    [
        {"dashboard": EDITED, "meta": {"slug": "mine", "folderUid": "x"}},
        {
            "kind": "Dashboard",
            "apiVersion": "dashboard.grafana.app/v1beta1",
            "metadata": {"name": "abc", "resourceVersion": "3"},
            "spec": {key: value for key, value in EDITED.items() if key != "uid"},
        },
    ],
    ids=["of the HTTP API", "of the resource API, v1"],
)
def test_what_the_apis_of_grafana_answer_is_the_same_dashboard(
    config: Path, bring: Import, wrapped: Json
) -> None:
    assert bring(wrapped) == 0
    assert shown(config)["mine"] == EDITED


PIECES = (
    *("<%", "%>", "<%=", "<%#", "#%>", "<% raw %>", "{{", "<", "%", "\\", '"', "'", "\n", "\t", " ", "  "),
    *(
        "#",
        " #",
        ":",
        ": ",
        "-",
        "- ",
        "|",
        "&",
        "*",
        "!",
        "~",
        "null",
        "on",
        "1e3",
        "1_0",
        "1:30",
        "2026-01-01",
    ),
)
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
PANELS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=5), max_size=3)


@given(title=TEXTS.filter(str.strip), panels=PANELS)
def test_whatever_texts_and_numbers_panels_hold_they_are_rendered_as_they_were(
    title: str, panels: list[Json]
) -> None:
    name, dashboard = own({"title": title, "panels": panels, "schemaVersion": 41})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.yaml.j2").write_text(template(dashboard), encoding="utf-8")
        (content,) = render_own(CHECKOUT, Path(folder), {"lines": ()}, {}).values()

    found = json.loads(content)
    assert found["title"] == title
    assert json.dumps(found["panels"]) == json.dumps(panels)


def test_whatever_asks_a_prometheus_asks_ours_and_other_sources_stay() -> None:
    others: list[Any] = [
        {"type": "loki", "uid": "logs"},
        {"type": "grafana", "uid": "-- Grafana --"},
        {"type": "datasource", "uid": "-- Mixed --"},
        {"uid": "-- Dashboard --"},
        "-- Mixed --",
        None,
    ]
    asked: list[Any] = [
        *({"type": "prometheus", "uid": uid} for uid in ("abc", "${DS_PROMETHEUS}", "${source}")),
        {"uid": "abc"},
        "Prometheus",
    ]
    panels = [{"type": "row", "panels": [{"targets": [{"datasource": each}]}]} for each in others + asked]

    _, made = own({**EDITED, "panels": panels, "templating": {"list": [{"datasource": asked[0]}]}})

    found = [panel["panels"][0]["targets"][0]["datasource"] for panel in made["panels"]]
    assert found == others + [OURS] * len(asked)
    assert made["templating"]["list"] == [{"datasource": OURS}]


def test_a_line_may_end_as_windows_ends_it() -> None:
    assert own({**EDITED, "panels": [{"content": "a\r\nb"}]})[1]["panels"] == [{"content": "a\nb"}]


def test_a_title_of_ones_own_names_the_template_and_the_uid_of_what_was_ours(
    config: Path, bring: Import
) -> None:
    assert bring({**EDITED, "uid": "stepwatch-runs", "title": "Runs"}, "--title", "Night shift") == 0
    assert shown(config)["night-shift"] == {**EDITED, "uid": "night-shift", "title": "Night shift"}


def test_titles_without_latin_letters_get_the_name_of_the_dashboard(config: Path, bring: Import) -> None:
    assert bring({**EDITED, "uid": "stepwatch-training", "title": "训练"}) == 0
    assert shown(config)["training-own"]["title"] == "训练 (own)"


def test_a_template_is_replaced_only_if_asked_to(
    config: Path, bring: Import, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(EDITED) == 0
    changed = {**EDITED, "panels": [{"type": "text"}]}

    assert bring(changed) == 2
    assert capsys.readouterr().err == (
        f"{config.parent}/dashboards/mine.yaml.j2: the file exists already. Expected: a new dashboard, or "
        "--force. Fix: add --title TEXT to keep the file, --force to replace it.\n"
    )
    assert shown(config)["mine"] == EDITED
    assert bring(changed, "--force") == 0
    assert shown(config)["mine"] == changed


def test_a_dashboard_whose_title_changed_is_not_imported_beside_its_former_template(
    config: Path, bring: Import, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(EDITED) == 0

    assert bring({**EDITED, "title": "Yours"}) == 2
    assert capsys.readouterr().err == (
        f"{config.parent}/dashboards/mine.yaml.j2: has the uid of {config.with_name('export.json')} (abc). "
        "Expected: one template per uid. Fix: delete the template that you no longer need; or change "
        "the uid of one.\n"
    )
    assert set(shown(config)) - {file.stem for file in dashboards()} == {"mine"}


def nested(levels: int) -> str:
    return '{"title": "a", "panels": [{"a": ' + "[" * levels + "]" * levels + "}]}"


FIX = (
    "Expected: the classic model of a dashboard, as Grafana exports it. Fix: export it again as JSON with "
    'the model "Classic", "Export for sharing externally" off.\n'
)
V2 = {"apiVersion": "dashboard.grafana.app/v2beta1", "kind": "Dashboard", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", ":1: the text is not JSON ("),
        ('{"title": NaN}', ":1: the text is not JSON ("),
        ("[]", ": has no list `panels`. " + FIX),
        ({"title": "a", "rows": []}, ": has no list `panels`. " + FIX),
        ({**EDITED, "panels": ["a"]}, ": has no list `panels`. " + FIX),
        ({**EDITED, "title": " "}, ": has no `title`, or a `uid` that is not text. " + FIX),
        ({**EDITED, "uid": 7}, ": has no `title`, or a `uid` that is not text. " + FIX),
        ({"title": "a", "elements": {}, "layout": {}}, ": the dashboard is in Grafana's v2 form. " + FIX),
        ({**V2, "spec": {"elements": {}}}, ": the dashboard is in Grafana's v2 form. " + FIX),
        (
            {**EDITED, "__inputs": [{"name": "DS_LOKI", "pluginId": "loki"}]},
            ": asks for values that only an import in Grafana can give (DS_LOKI). " + FIX,
        ),
        (
            {**EDITED, "panels": [{"title": "a\u0007"}]},
            ': panels[0].title: "a\\u0007" holds a control character. Expected: printable text. ',
        ),
        (nested(40), ": the nesting is deeper than 32 levels. "),
        (nested(900), ": the nesting is deeper than 32 levels. "),
    ],
)
def test_what_is_not_a_classic_dashboard_is_refused_with_the_fix_and_nothing_is_written(
    config: Path, bring: Import, capsys: pytest.CaptureFixture[str], document: Any, said: str
) -> None:
    assert bring(document) == 2

    error = capsys.readouterr().err
    assert error.startswith(f"{config.with_name('export.json')}{said}")
    assert "Fix: " in error
    assert error.count("\n") == 1
    assert not config.with_name("dashboards").exists()


def test_a_file_that_cannot_be_read_or_is_too_large_is_refused(
    config: Path, bring: Import, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_import, "LARGEST_BYTES", 1000)
    assert bring({**EDITED, "description": "x" * 1000}) == 2
    assert ": the file has more than 1000 bytes. Expected: a dashboard. Fix: " in capsys.readouterr().err

    for file, why in ((config.with_name("none.json"), 2), (config.parent, 21)):
        assert main(["import-dashboard", "--config", str(config), str(file)]) == 2
        assert capsys.readouterr().err == (
            f"{file}: the file cannot be read ({os.strerror(why)}). Expected: a JSON file that Grafana "
            "exported. Fix: check path and permissions.\n"
        )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("runs", "uid: a\ntitle: b\npanels: []\n", "a dashboard of Stepwatch has this name. "),
        (
            "mine",
            "uid: stepwatch-runs\ntitle: b\npanels: []\n",
            'uid: "stepwatch-runs" is already used by Stepwatch\'s dashboard runs. ',
        ),
        (
            "mine",
            "uid: a\ntitle: Runs\npanels: []\n",
            'title: "Runs" is already used by Stepwatch\'s dashboard runs. ',
        ),
        (
            "mine",
            "uid: a\ntitle: Other\npanels: []\n",
            'title: "Other" is already used by {folder}/a.yaml.j2. ',
        ),
        ("mine", "title: b\npanels: []\n", "a dashboard (b) has no `uid`. "),
    ],
)
def test_a_template_with_the_name_uid_or_title_of_another_or_without_is_refused_before_anything_is_written(
    config: Path, name: str, text: str, said: str
) -> None:
    folder = config.with_name("dashboards")
    folder.mkdir()
    (folder / "a.yaml.j2").write_text("uid: other\ntitle: Other\npanels: []\n")
    (folder / f"{name}.yaml.j2").write_text(text)

    with pytest.raises(Refused) as refusal:
        generate(config, config.with_name("out"), place=OnThisMachine)

    assert str(refusal.value).startswith(f"{folder}/{name}.yaml.j2: {said.format(folder=folder)}")
    assert not config.with_name("out").exists()


def test_a_template_of_ones_own_may_use_our_macros_and_a_fault_in_it_has_its_line(config: Path) -> None:
    folder = config.with_name("dashboards")
    folder.mkdir()
    mine = folder / "mine.yaml.j2"
    macros = '<% import "grafana/templates/_panels.yaml.j2" as panels -%>\n'
    mine.write_text(macros + "uid: a\ntitle: b\nlinks: <%= panels.navigation() %>\nrows: []\n")
    assert shown(config)["mine"]["links"] == shown(config)["runs"]["links"]

    mine.write_text(macros + "uid: a\ntitle: <%= no_such_name %>\nrows: []\n")
    with pytest.raises(Refused) as refusal:
        shown(config)
    assert str(refusal.value).startswith("dashboards/mine.yaml.j2:3: 'no_such_name' is undefined. Fix: ")


def test_an_imported_dashboard_is_pending_until_it_is_rendered_and_gone_without_its_template(
    config: Path, bring: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("PROMTOOL", "AMTOOL"):
        monkeypatch.setenv(f"STEPWATCH_{tool}", "/bin/true")
    generate(config, config.parent, place=OnThisMachine)
    assert bring(EDITED) == 0
    assert pending(config, config.parent, OnThisMachine) == (
        f"Dashboards were changed since they were rendered: `make up CONFIG={config}` shows them."
    )

    generate(config, config.parent, place=OnThisMachine)
    assert (config.parent / GENERATED / "mine.json").exists()
    assert pending(config, config.parent, OnThisMachine) is None

    config.with_name("dashboards").joinpath("mine.yaml.j2").unlink()
    generate(config, config.parent, place=OnThisMachine)
    assert not (config.parent / GENERATED / "mine.json").exists()

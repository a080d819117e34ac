"""What a person reads on the dashboards: of a sick run, a healthy one, simulated GPUs, and nothing at all."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.runs.stats.catalogue import STATES
from stepwatch.render.dashboard import CURVE_COLOURS
from tests import own_logs
from tests.e2e.stack import PAIRS
from tests.e2e.writer import writing
from tests.grafana.drawn import DRAWING, VERSIONS, WIDTHS, Drawing, drawing
from tests.grafana.queries import Json, View, marks_of
from tests.rules import rendered
from tests.runs.light.screenshots import Scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SICK, WELL = "grpo/short-answers", "ppo/long.run"
RED, ORANGE, GREEN = {"#F2495C", "#E02F44"}, {"#FF9830"}, {"#73BF69"}
ALL = {"folder": ".*", "framework": ".*", "state": ".*"}

WITHOUT_STEP = 'ALERTS{alertstate="firing",run!=""} unless on (alertname, severity, run) rl_alert_onset_step'
"""Alerts that fire, and the rule that records their onset was not evaluated since."""

Found = dict[str, list[Any]]


@pytest.fixture(name="scene", scope="module")
def _scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, float]]:
    """A stack whose sick run fires, with when it began."""
    with Scene(tmp_path_factory.mktemp("scene"), PAIRS[-1]) as scene:
        began = time.time()
        with (
            writing(own_logs.SICK, scene.runs / f"{SICK}.log", "--rate=1.5", "--stay"),
            writing(own_logs.HEALTHY, scene.runs / f"{WELL}.log", "--rate=2", "--stay"),
        ):
            scene.wait_until(lambda: scene.query('ALERTS{alertname="RewardCollapse",alertstate="firing"}'))
            scene.wait_step(SICK, 60)
            scene.wait_until(lambda: scene.query("rate(gpu_energy_joules_total[1m])"))
            scene.wait_step(WELL, 50)
            scene.wait_until(lambda: not scene.query(WITHOUT_STEP))
            yield scene, began


drawn = pytest.mark.parametrize("pen", DRAWING, indirect=True)


@pytest.fixture(name="pen", scope="module", params=VERSIONS.values())
def _pen(request: pytest.FixtureRequest) -> Iterator[Drawing]:
    """Grafana's libraries of each version that we promise to work on."""
    with drawing(request.param) as found:
        yield found


class Eyes:
    """Reads the dashboards of the scene."""

    def __init__(self, scene: Scene, began: float, pen: Drawing, dashboards: Mapping[str, Json]) -> None:
        self._url = f"http://{scene.config.address('prometheus')}"
        self._dashboards = dashboards
        self._began, self.pen = began, pen
        (gpu, *_) = scene.query("gpu_up")
        self.box = gpu["metric"]["instance"]

    def marks(self, name: str, **variables: str) -> list[Json]:
        view = View(self._began, time.time(), variables)
        listed = self._dashboards[name]["annotations"]["list"]
        return [mark for each in listed for mark in marks_of(self._url, each, view)]

    def read(self, name: str, theme: str = "dark", width: int = 1600, **variables: str | list[str]) -> Found:
        return self.pen.show(
            self._dashboards[name], self._url, View(self._began, time.time(), variables), theme, width
        )


@pytest.fixture(name="eyes", scope="module")
def _eyes(scene: tuple[Scene, float], pen: Drawing) -> Eyes:
    folder = scene[0].state.rendered / "grafana/generated/dashboards"
    return Eyes(*scene, pen, {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")})


@pytest.fixture(name="chinese", scope="module")
def _chinese(scene: tuple[Scene, float], pen: Drawing) -> Eyes:
    """The same data on dashboards in Chinese."""
    files = rendered.files({"language": "zh"})
    folder = PurePosixPath("grafana/generated/dashboards")
    return Eyes(
        *scene, pen, {path.stem: json.loads(data) for path, data in files.items() if path.parent == folder}
    )


@pytest.fixture(name="runs", scope="module")
def _runs(eyes: Eyes) -> Found:
    return eyes.read("runs", **ALL)


@pytest.fixture(name="sick", scope="module")
def _sick(eyes: Eyes) -> Found:
    return eyes.read("training", run=SICK)


@pytest.fixture(name="well", scope="module")
def _well(eyes: Eyes) -> Found:
    return eyes.read("training", run=WELL)


def test_the_sickest_run_stands_first_with_the_first_of_its_worst_alerts(runs: Found) -> None:
    sick, well = runs["All runs"]

    assert sick["run"]["text"] == SICK
    assert (sick["severity"]["text"], sick["severity"]["color"] in RED) == ("critical", True)
    critical = [row for row in runs["Firing"] if row["severity"]["text"] == "critical"]
    first = {row["alert"]["text"] for row in critical if row["since"] == critical[0]["since"]}
    assert sick["alert"]["text"] in first
    assert (well["run"]["text"], well["severity"]["text"], well["alert"]["text"]) == (WELL, "", "")
    assert {sick["state"]["text"], well["state"]["text"]} <= {*STATES, "stalled"}


def test_a_run_is_opened_with_its_own_time_on_show(runs: Found, scene: tuple[Scene, float]) -> None:
    (row,) = [each for each in runs["All runs"] if each["run"]["text"] == SICK]
    (link,) = row["run"]["links"]
    asked = parse_qs(urlsplit(link).query)
    (start,) = scene[0].query(f'rl_run_start_timestamp_seconds{{run="{SICK}"}}')

    assert urlsplit(link).path == "/d/stepwatch-training"
    assert asked["var-run"] == [SICK]
    assert asked["from"] == [str(round(1000 * float(start["value"][1])))]
    assert asked["to"] == ["now"]


@drawn
def test_states_are_bars_in_their_colours(eyes: Eyes, runs: Found) -> None:
    eyes.read("runs", **ALL)

    assert {row["name"] for row in runs["States"]} == {SICK, WELL}
    (green,) = GREEN
    assert green.lower() in eyes.pen.colours("States")


@drawn
def test_curves_of_runs_are_drawn_over_their_steps(eyes: Eyes) -> None:
    eyes.read("compare", runs=[SICK, WELL], baseline=WELL, reach="0.5")

    palette, grey = {"#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2"}, "#8a8fa3"
    found = eyes.pen.colours("Reward")
    assert len(palette & found) == 1
    assert grey in found, "the baseline"


def test_folder_and_state_leave_out_other_runs(eyes: Eyes) -> None:
    of_folder = eyes.read("runs", **{**ALL, "folder": "ppo/"})
    failed = eyes.read("runs", **{**ALL, "state": "failed"})

    assert [each["run"]["text"] for each in of_folder["All runs"]] == [WELL]
    assert failed["All runs"] == []


def test_what_fires_is_in_the_order_of_its_onset_with_the_step(runs: Found, sick: Found) -> None:
    for found in (runs["Firing"], sick["Firing"]):
        rows = [row for row in found if row["severity"]["text"] != "info"]
        assert len(rows) >= 4
        assert [row["since"]["text"] for row in rows] == sorted(row["since"]["text"] for row in rows)
        assert all(30 <= int(row["step"]["text"]) <= 60 for row in rows)
        assert all("none" not in cell["text"] for row in rows for cell in row.values())
    assert {row["about"]["text"] for row in runs["Firing"]} == {SICK}


def test_each_onset_is_marked_once_with_its_step(eyes: Eyes) -> None:
    found = eyes.marks("training", run=SICK)
    titles = [(mark["title"], mark["color"]) for mark in found]

    assert len(titles) == len(set(titles)) >= 4
    assert any(re.fullmatch(r"KLExplosion at step [3-6]\d", title) for title, _ in titles)
    assert {mark["color"] for mark in found} == {"red", "orange"}
    assert eyes.marks("training", run=WELL) == []


def test_only_limits_are_red_or_orange(sick: Found) -> None:
    drawn = [curve for curves in sick.values() for curve in curves if curve.get("legend")]
    limits = [curve for curve in drawn if curve["color"] in {"red", "orange"}]

    assert len(limits) >= 5
    for curve in drawn:
        severity = re.search(r"\((critical|warning)\)$", curve["name"])
        if severity:
            assert curve["color"] == {"critical": "red", "warning": "orange"}[severity[1]]
        else:
            assert curve["color"] in {*CURVE_COLOURS, "text"}, curve


def test_a_limit_is_drawn_where_the_curve_comes_near_and_flattens_no_other(sick: Found, well: Found) -> None:
    def names(found: Found, title: str) -> set[str]:
        return {curve["name"] for curve in found[title]}

    assert {"KLHigh (warning)", "KLExplosion (critical)"} <= names(sick, "KL")
    assert not {"KLHigh (warning)", "KLExplosion (critical)"} & names(well, "KL")


def test_a_curve_that_the_run_does_not_log_leaves_an_empty_panel(sick: Found) -> None:
    assert sick["Critic loss"] == []
    assert "step" in {curve["name"] for curve in sick["Reward"]}


@drawn
def test_rows_of_what_moved_have_the_colours_of_their_directions(eyes: Eyes) -> None:
    colours = {"up": "#ca95e5", "far up": "#8f3bb8", "down": "#8ab8ff", "far down": "#1f60c4"}
    found = eyes.read("diagnose", run=SICK, band="20")["What moved first"]
    seen = {colour for text, colour in colours.items() if any(text in row["texts"] for row in found)}

    assert seen & eyes.pen.colours("What moved first")


def test_the_stack_says_whether_silence_can_be_trusted(eyes: Eyes) -> None:
    found = eyes.read("stack")
    figures = {title: values[0]["text"] for title, values in found.items() if values and "text" in values[0]}
    empty = {title for title, values in found.items() if not values}

    assert figures.pop("Can I trust silence?") == "yes"
    assert figures.pop("Sent, 24 h")
    assert set(figures.values()) == {"0"}
    assert {row["state"]["text"] for row in found["Targets"]} == {"up"}
    assert empty <= {"Firing", "Disks of the stack"}


def test_an_empty_stack_says_what_to_do(eyes: Eyes) -> None:
    eyes.read("runs", folder="none/", framework=".*", state=".*")
    runs = text_of(eyes, "All runs")
    eyes.read("gpu", instance="none")
    gpus = text_of(eyes, "Side by side")

    assert runs.startswith("No runs yet. Expected: a trainer that logs into a folder of")
    assert gpus.startswith("No GPU exporter. Fix:")


def text_of(eyes: Eyes, title: str) -> str:
    boxes = eyes.pen.browser.tell(
        "Object.fromEntries([...document.querySelectorAll('section')]"
        ".map((box) => [box.querySelector('h2').textContent, box.innerText.split('\\n').slice(1).join(' ')]))"
    )
    return str(boxes[title]).strip()


def cut_off(eyes: Eyes) -> Any:
    """The titles of panels, and the entries of legends, that do not fit."""
    return eyes.pen.browser.tell(
        "[...document.querySelectorAll('h2, section button:not([role=columnheader] *)')].filter((text) => {"
        " const right = (each) => each.getBoundingClientRect().right;"
        " return text.scrollWidth > text.clientWidth || right(text) > right(text.closest('section'));"
        "}).map((text) => text.textContent)"
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_no_title_and_no_legend_is_cut_off_in_chinese(chinese: Eyes, width: int) -> None:
    shown = {
        "runs": ALL,
        "training": {"run": SICK},
        "stack": {},
        "gpu": {"instance": chinese.box},
    }
    for name, variables in shown.items():
        assert chinese.read(name, width=width, **variables)
        assert cut_off(chinese) == []


def test_a_sick_run_is_read_in_chinese(chinese: Eyes) -> None:
    sick, well = chinese.read("runs", **ALL)["所有训练任务"]
    curves = {curve["name"] for curve in chinese.read("training", run=SICK)["KL"]}

    assert sick["训练任务"]["text"] == SICK
    assert (sick["级别"]["text"], sick["级别"]["color"] in RED) == ("严重", True)
    assert urlsplit(sick["训练任务"]["links"][0]).path == "/d/stepwatch-training"
    assert {sick["状态"]["text"], well["状态"]["text"]} <= {"运行中", "已完成", "卡住", "已停止"}
    assert {"KL", "KLHigh（警告）", "KLExplosion（严重）"} <= curves

"""Every panel of every dashboard, read and drawn, with data and without. Of what, see `everything`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stepwatch.system.environment import CHECKOUT
from tests.grafana import everything
from tests.grafana.conftest import Json
from tests.grafana.drawn import DRAWING, THEMES, VERSIONS, WIDTHS, Answered, Drawing, asked, drawing
from tests.grafana.everything import BOX, MACHINE, OVER, SICK, SPLIT, START, WELL
from tests.grafana.queries import View, panels_of
from tests.grafana.stored import serving, store
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NAMES = tuple(sorted(path.stem for path in (CHECKOUT / "grafana/generated/dashboards").glob("*.json")))
NOT_ON_THIS_BOX = {"gpu": {"Instances"}}
"""Panels about what the GPUs on show are not."""
CURVES = ("timeseries", "trend")
ON_CANVAS = (*CURVES, "state-timeline", "heatmap")

Seen = dict[str, list[Any]]


@pytest.fixture(name="url", scope="module")
def _url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("everything")
    store(folder, everything.samples())
    with serving("3.13", folder) as server:
        yield server.url


@pytest.fixture(name="pen", scope="module", params=VERSIONS.values())
def _pen(request: pytest.FixtureRequest) -> Iterator[Drawing]:
    with drawing(request.param) as found:
        yield found


drawn = pytest.mark.parametrize("pen", DRAWING, indirect=True)


class Dashboards:
    """The dashboards by name; each is asked for once, and read once."""

    def __init__(self, default: dict[str, Json], url: str) -> None:
        self._all, self._url = default, url
        self._answered: dict[str, Answered] = {}
        self._read: dict[tuple[str, str], Seen] = {}

    def panels(self, name: str) -> list[Json]:
        return list(panels_of(self._all[f"stepwatch-{name}"]))

    def answered(self, name: str, view: View | None = None) -> Answered:
        if view:
            return asked(self._all[f"stepwatch-{name}"], self._url, view)
        if name not in self._answered:
            self._answered[name] = self.answered(name, everything.view(name))
        return self._answered[name]

    def read(self, pen: Drawing, name: str) -> Seen:
        if (pen.version, name) not in self._read:
            self._read[pen.version, name] = pen.draw(self.answered(name))
        return self._read[pen.version, name]


@pytest.fixture(name="all_", scope="module")
def _all(default: dict[str, Json], url: str) -> Dashboards:
    return Dashboards(default, url)


def words(read: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield what a panel says: each column, series or value with each of its texts."""
    for each in read:
        if isinstance(each.get("name"), str):
            yield from ((each["name"], text) for text in each.get("texts", [each.get("text")]))
        else:
            yield from ((column, cell["text"]) for column, cell in each.items())


@pytest.mark.parametrize("name", NAMES)
def test_each_panel_has_something_to_show(all_: Dashboards, pen: Drawing, name: str) -> None:
    found = all_.read(pen, name)

    assert {title for title, read in found.items() if not read} == NOT_ON_THIS_BOX.get(name, set())


RAW = re.compile(
    r"none|null|undefined|nan|-?∞\+?|-?infinity|.*(\[object|Value #|[{}]|=\"|\$|__).*", re.IGNORECASE
)
"""What Grafana, Prometheus or JavaScript says in place of a text for people."""
UNREADABLE = re.compile(r"\d{7,}|\d\.\d{9,}|\b1970\b|Invalid|\d years|\bm(B|iB|b)\b")
"""Times as numbers or durations, every digit that a computer has, thousandths of a byte."""


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_no_value_and_no_name_is_raw(all_: Dashboards, pen: Drawing, name: str) -> None:
    """Defect 2, 5, 13: "none", "-∞+", a field's internal name, or what a label or a formula is called."""
    found = {
        (title, heading, text)
        for title, read in all_.read(pen, name).items()
        for heading, text in words(read)
        if not heading.strip() or RAW.fullmatch(text) or RAW.fullmatch(heading)
    }

    assert not found


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_written_for_people(all_: Dashboards, pen: Drawing, name: str) -> None:
    found = {
        (title, heading, text)
        for title, read in all_.read(pen, name).items()
        for heading, text in words(read)
        if UNREADABLE.search(text)
    }

    assert not found


@pytest.mark.parametrize("name", NAMES)
def test_a_legend_says_each_name_once(all_: Dashboards, pen: Drawing, name: str) -> None:
    """At most eight, which are read at a glance."""
    found = all_.read(pen, name)
    for panel in all_.panels(name):
        if panel["type"] in CURVES and (read := found[panel["title"]]):
            entries = [each["name"] for each in read if each["legend"] and each["shown"]]
            entries = [each for each in entries if not (panel["type"] == "trend" and each == "step")]
            assert len(set(entries)) == len(entries) <= 8, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_the_step_is_in_tooltips_only(all_: Dashboards, pen: Drawing, name: str) -> None:
    """Defect 17: no axis, no entry of a legend, and no dot on an empty plot."""
    steps = [each for read in all_.read(pen, name).values() for each in read if each.get("name") == "step"]
    curves = [each for each in steps if "axis" in each and name != "compare"]

    assert bool(curves) == (name == "training")
    assert {(each["legend"], each["axis"], each["color"]) for each in curves} <= {
        (False, "hidden", "transparent")
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_without_data_says_why(all_: Dashboards, pen: Drawing, name: str) -> None:
    """Defect 13: in words, unless it is a figure, which has "-" or a 0 of its own."""
    found = pen.draw(all_.answered(name, before(name)))
    said = pen.texts()
    for panel in all_.panels(name):
        title = panel["title"]
        if found[title]:
            assert panel["type"] == "stat", title
            continue
        text = " ".join(dict.fromkeys(each.text for each in said[title] if each.kind != "title"))
        assert text == panel["fieldConfig"]["defaults"]["noValue"], title
        assert panel["type"] == "stat" or re.match(r"[\w :]{4,}", text), title


def before(name: str) -> View:
    """A time of which nothing is known."""
    return View(START - 7200, START - 3600, everything.view(name).variables, interval=everything.EVERY)


MATRIX = tuple(product(THEMES, WIDTHS))
EACH = [(name, *MATRIX[number % len(MATRIX)]) for number, name in enumerate(NAMES)]
"""Each dashboard once, in turn in each theme and width."""


@drawn
@pytest.mark.parametrize(
    ("name", "theme", "width"),
    [
        pytest.param(*each, marks=() if each in EACH else pytest.mark.world)
        for each in product(NAMES, THEMES, WIDTHS)
    ],
)
def test_each_panel_is_drawn_without_error_and_no_text_is_cut_or_lies_over_another(
    all_: Dashboards, pen: Drawing, name: str, theme: str, width: int
) -> None:
    """Defect 1, 8, 15, in both themes and widths."""
    pen.errors()
    found = pen.draw(all_.answered(name), theme, width)
    full = {panel["title"]: panel for panel in all_.panels(name) if found[panel["title"]]}
    curves = {title for title, panel in full.items() if panel["type"] in ON_CANVAS}
    eventually(lambda: {title for title, count in pen.coloured().items() if count > 100} >= curves, pause=0.2)
    texts = pen.texts()

    assert pen.errors() == []
    for title, panel in full.items():
        if panel["type"] not in ON_CANVAS:
            assert [each for each in texts[title] if each.kind == "other"], title
    # A narrow table is scrolled.
    whole = {"title", "legend"} if width < WIDTHS[0] else {"title", "legend", "heading"}
    cut = [
        (title, each.text)
        for title, lines in texts.items()
        for each in lines
        if each.kind in whole and each.within < 0.99
    ]
    over = [
        (title, one.text, other.text)
        for title, lines in texts.items()
        for one, other in combinations(lines, 2)
        if one.over(other)
    ]
    assert (cut, over) == ([], [])


WRONG = """
<section title="Reward" style="width: 200px; height: 100px; overflow: hidden">
<h2 style="width: 60px; overflow: hidden; white-space: nowrap">Reward of a run</h2>
<div style="height: 20px">0.5</div><div style="margin-top: -15px">0.25</div><div hidden>0.75</div>
<canvas></canvas>
</section>
"""


@drawn
def test_a_cut_title_a_text_over_another_an_error_and_an_empty_canvas_are_found(
    pen: Drawing, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html>{WRONG}<script>console.error('oh no')</script>")
    pen.browser.open(page.as_uri())
    title, *numbers = pen.texts()["Reward"]

    assert (title.text, title.kind, title.within < 0.9) == ("Reward of a run", "title", True)
    assert [(each.text, each.kind, each.within) for each in numbers] == [
        ("0.5", "other", 1),
        ("0.25", "other", 1),
    ]
    assert numbers[0].over(numbers[1])
    assert pen.coloured() == {"Reward": 0}
    assert ["oh no" in each for each in pen.errors()] == [True]


def table(seen: Seen, title: str) -> list[dict[str, str]]:
    """The rows of a table, as they are read."""
    return [{column: cell["text"] for column, cell in row.items()} for row in seen[title]]


def figures(seen: Seen, *titles: str) -> list[list[str]]:
    return [[each["text"] for each in seen[title]] for title in titles]


def last(seen: Seen, title: str) -> dict[str, str]:
    """What the curves of a panel end with."""
    return {each["name"]: each["last"]["text"] for each in seen[title]}


def test_rollout_servers_of_all_engines_are_read_with_their_figures(all_: Dashboards, pen: Drawing) -> None:
    """Missing 5: of vLLM and SGLang, old and new, as recorded."""
    found = all_.read(pen, "rollout")
    servers = {row.pop("server"): row for row in table(found, "Servers side by side")}

    assert figures(found, "Servers", "Running now", "Waiting now") == [["6", "6"], ["40"], ["30"]]
    assert sorted(servers) == [
        *("ray-serve:8000", "sglang-old:8000", "sglang-underscore:8000", "sglang:8000", "vllm-old:8000"),
        "vllm:8000",
    ]
    assert servers["vllm:8000"] == {
        "waiting": "6",
        "running": "8",
        "idle": "0%",
        "KV cache": "30%",
        "preempted/min": "60.0",
        "prefix hits": "75%",
        "tokens/s": "100",
        "p50": "1.0 s",
        "p99": "9.9 s",
    }
    assert servers["sglang-old:8000"]["preempted/min"] == "", "it does not report them"
    assert last(found, "KV cache") == {"fullest": "30%", "mean": "30%", "emptiest": "30%"}
    assert last(found, "Waiting for training")["servers idle"] == "0%"
    assert [each["name"] for each in found["Request time"]] == ["p50", "p90", "p99"]
    bounds = [float(each["name"]) for each in found["Request time spread"]]
    assert bounds == sorted(bounds), "buckets of a heatmap stand in order"
    assert table(found, "Firing")[0]["server"] == "vllm:8000"


def test_a_machine_and_a_node_of_ray_are_read_with_their_figures(all_: Dashboards, pen: Drawing) -> None:
    """Missing 5: of node_exporter, and of Ray as recorded."""
    found = all_.read(pen, "nodes")

    assert figures(found, "Machines", "Hung mounts") == [["1", "1"], ["0"]]
    assert table(found, "Machines side by side") == [
        {
            "machine": MACHINE,
            "state": "up",
            "CPU": "20%",
            "I/O wait": "5%",
            "load/core": "0.50",
            "memory": "60%",
            "of": "1000 B",
            "fullest disk": "75%",
            "disk busy": "50%",
            "network": "7.0 kB/s",
            "InfiniBand": "2.0 MB/s",
        }
    ]
    assert last(found, "CPU") == {"node": "20.0%"}
    (ray,) = table(found, "Ray nodes")
    assert (ray["node"], ray["killed"]) == ("ray:8000", "1")
    systems = {row["mountpoint"]["text"]: row for row in found["File systems"]}
    assert (systems["/"]["writable"]["text"], systems["/"]["readable"]["text"]) == ("yes", "yes")
    assert (systems["/nas"]["readable"]["text"], systems["/nas"]["readable"]["color"]) == ("no", "#FF9830")
    assert set(last(found, "Object store")) == {"in the store", "room left", "spilled"}


def test_the_disks_of_the_stack_stand_with_what_is_left_the_fullest_first(
    all_: Dashboards, pen: Drawing
) -> None:
    found = all_.read(pen, "stack")

    assert table(found, "Disks of the stack") == [
        {
            "mountpoint": "/var/lib/stepwatch",
            "device": "/dev/vda",
            "in use": "80%",
            "free": "18.6 GiB",
            "size": "93.1 GiB",
        },
        {"mountpoint": "/", "device": "/dev/vda", "in use": "25%", "free": "698 GiB", "size": "931 GiB"},
    ]
    assert figures(found, "Can I trust silence?", "Findings", "Sent, 24 h") == [
        ["no: no receiver"],
        ["0"],
        ["30"],
    ]
    assert last(found, "Rule evaluation") == {"slowest group": "20 ms", "all groups": "30 ms"}


def test_a_slowed_card_and_one_with_errors_is_seen_at_a_glance(all_: Dashboards, pen: Drawing) -> None:
    """Missing 4: the faulty card first, with its reason, beside the others."""
    found = all_.read(pen, "gpu")
    first, *others = table(found, "Side by side")

    assert (first["gpu"], first["state"], first["reason"]) == ("5", "faulty", "software_thermal")
    assert {(row["state"], row["slowed down"], row["reason"]) for row in others} == {("ok", "0%", "")}
    clocks = [float(row["SM clock"].split()[0]) for row in others]
    assert clocks == sorted(clocks), "then the slowest"
    assert table(found, "Xid errors")[0]["xid"] == "48: uncorrectable memory error"
    assert table(found, "Health")[0]["gpu"] == "5"
    energy = {row["run"]: row for row in table(found, "Energy by run")}
    assert set(energy) == {SICK, OVER}
    assert (energy[SICK]["GPUs"], energy[SICK]["energy"]) == ("4", "600.0 Wh")


def test_instances_of_a_split_card_have_a_row_each(all_: Dashboards, pen: Drawing) -> None:
    found = pen.draw(all_.answered("gpu", everything.view("gpu", instance=SPLIT)))
    rows = table(found, "Instances")

    assert len(rows) > 1
    assert len({json.dumps(row) for row in rows}) == len(rows)


def test_two_runs_are_read_side_by_side_against_the_baseline(all_: Dashboards, pen: Drawing) -> None:
    """Missing 1: over steps, which a tooltip calls by that name."""
    found = all_.read(pen, "compare")
    rows = {row.pop("run"): row for row in table(found, "Side by side")}

    assert list(rows) == [SICK, WELL]
    assert (rows[WELL]["best vs baseline"], rows[WELL]["vs baseline at common step"]) == ("0.000", "0.000")
    assert (rows[SICK]["step"], rows[SICK]["between steps"], rows[SICK]["GPU hours"]) == ("361", "5 s", "2.0")
    for panel in all_.panels("compare"):
        if panel["type"] == "trend":
            assert {each["name"] for each in found[panel["title"]]} == {"step", SICK, f"{WELL} (baseline)"}


def test_an_incident_is_read_from_what_moved_first_to_what_to_do(all_: Dashboards, pen: Drawing) -> None:
    """Missing 2: signals and alerts by step, and what fired around the run."""
    found = all_.read(pen, "diagnose")
    (title,) = (title for title, read in found.items() if read and "signal" in read[0])
    moved = table(found, title)

    assert {row["signal"] for row in moved} == set(everything.MOVED)
    assert {int(row["step"]) for row in moved} == {everything.step_at(everything.MOVES)}
    alerts = [(row["alert"], int(row["step"])) for row in table(found, "Alerts")]
    own = [alert for alert in everything.FIRING if alert.labels.get("run") == SICK]
    assert alerts == [(alert.name, everything.step_at(alert.since)) for alert in own]
    assert all(row["what to do first"] for row in table(found, "Alerts"))
    assert {each["name"] for each in found["Around the run"]} == {
        "GPUHot box-1:9411 GPU 5",
        "GPUXid box-1:9411 GPU 5",
        "EngineQueue vllm vllm:8000",
    }, "on its machines"


def test_a_run_says_how_far_it_is_and_how_long_it_will_take(all_: Dashboards, pen: Drawing) -> None:
    """Missing 7: progress, time left, duration, tokens, a sparkline; a finished run has no time left."""
    found = all_.read(pen, "runs")
    rows = {row["run"]: row for row in table(found, "All runs")}

    assert list(rows) == [SICK, WELL, OVER], "those in need first"
    assert (rows[SICK]["progress"], rows[SICK]["left"]) == ("36%", "53 mins")
    assert rows[WELL]["progress"] == "-", "it does not say how many steps it will take"
    assert (rows[SICK]["duration"], rows[SICK]["tokens/s"]) == ("30 mins", "5.2 K")
    assert (rows[OVER]["progress"], rows[OVER]["left"], rows[OVER]["state"]) == ("100%", "", "finished")
    assert (rows[SICK]["severity"], rows[SICK]["alert"]) == ("critical", "KLExplosion")
    assert {each["name"] for each in found["Rewards"]} == {SICK, WELL, OVER}
    training = all_.read(pen, "training")
    assert figures(training, "Step", "Time left") == [["361", "1000"], ["53 mins"]]


SPARKLINES = """
    [...document.querySelectorAll('section[title="Rewards"] canvas')].map((canvas) => {
        const {data, width} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const columns = new Set();
        for (let at = 3; at < data.length; at += 4) {
            if (data[at] > 0) columns.add(((at - 3) / 4) % width);
        }
        return (Math.max(...columns) - Math.min(...columns)) / width;
    })"""
"""Which share of its width each curve takes."""


@drawn
def test_a_sparkline_lies_where_its_run_was_in_the_time_on_show(all_: Dashboards, pen: Drawing) -> None:
    for times in (1, 3):
        start = everything.END - times * everything.LASTS
        pen.draw(all_.answered("runs", replace(everything.view("runs"), start=start)))
        shares = sorted(pen.browser.tell(SPARKLINES))
        assert shares == pytest.approx([1 / 3 / times, 1 / times, 1 / times], abs=0.05)


RED, ORANGE = {"#F2495C", "#E02F44"}, {"#FF9830", "#FF780A"}


@pytest.mark.parametrize("name", NAMES)
def test_severities_have_their_colours(all_: Dashboards, pen: Drawing, name: str) -> None:
    """Defect 7: a warning is not red."""
    tables = [read for read in all_.read(pen, name).values() if read and "severity" in read[0]]
    cells = [row["severity"] for rows in tables for row in rows if row["severity"]["text"]]

    assert bool(cells) == (name not in {"compare", "tutorial"})
    for cell in cells:
        assert cell["color"].upper() in {"critical": RED, "warning": ORANGE}[cell["text"]]


def test_the_phases_of_a_step_are_stacked_and_the_whole_step_is_a_line_above(
    all_: Dashboards, pen: Drawing
) -> None:
    """Missing 3."""
    (panel,) = (each for each in all_.panels("training") if each["title"] == "Step by phase")
    letters = {each["legendFormat"]: each["refId"] for each in panel["targets"]}
    alone = {
        each["matcher"]["options"]
        for each in panel["fieldConfig"]["overrides"]
        if any(
            entry["id"] == "custom.stacking" and entry["value"]["mode"] == "none"
            for entry in each["properties"]
        )
    }
    phases = last(all_.read(pen, "training"), "Step by phase")

    assert panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    assert alone == {letters["whole step"], letters["step"]}
    assert {"rollout", "actor update", "whole step"} <= set(phases)


SHOWN_ONLY_IF_LOGGED = {
    "Reward components": {"part 9"},
    "Reward spread": {"smallest", "largest", "deviation"},
    "Advantages": {"smallest", "mean", "largest"},
    "Staleness": {"mean", "largest"},
    "Mismatch": {"difference", "largest"},
    "Engine KL": {"engine KL"},
    "Learning rate": {"actor", "critic"},
    "Explained variance": {"explained variance"},
}


def test_whatever_a_trainer_logs_has_a_panel(all_: Dashboards, pen: Drawing) -> None:
    """Missing 6."""
    found = all_.read(pen, "training")

    for title, curves in SHOWN_ONLY_IF_LOGGED.items():
        assert curves <= {each["name"] for each in found[title]}, title
    assert [row["key"] for row in table(found, "Other keys")] == ["actor/own"]
    assert re.fullmatch(r"\d\.\d\de-[67]", last(found, "Learning rate")["actor"])


def test_the_critic_has_an_axis_of_its_own_so_that_no_limit_of_the_actor_lies_under_its_curve(
    all_: Dashboards, pen: Drawing
) -> None:
    """Defect 9: a healthy run looked sick."""
    found = all_.read(pen, "training")
    names = {
        title: {each["name"] for each in found[title]} for title in ("Gradient norm", "Critic gradient norm")
    }
    for panel in all_.panels("training"):
        asked_for = {
            signal
            for target in panel["targets"]
            for signal in re.findall(r"\brl_((?:critic_)?grad_norm)\{", target["expr"])
        }
        assert len(asked_for) <= 1, panel["title"]

    assert names["Gradient norm"] == {"actor", "GradNormHigh (warning)", "step"}
    assert names["Critic gradient norm"] == {"critic", "step"}


def test_nothing_goes_on_after_the_end_of_a_run(all_: Dashboards, pen: Drawing) -> None:
    """Defect 14: the range of its link ends with it, its reward too, and only its own GPUs are on show."""
    runs = all_.read(pen, "runs")
    (row,) = (each for each in runs["All runs"] if each["run"]["text"] == OVER)
    (link,) = row["run"]["links"]
    chosen = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    first, end = int(chosen["from"]) / 1000, int(chosen["to"]) / 1000
    (reward,) = (
        series["values"]
        for series in all_.answered("runs").answers_of("Rewards", "A")
        if series["metric"]["run"] == OVER
    )

    assert chosen["var-run"] == OVER
    assert (first, end) == (START, START + everything.RAN + 60)
    assert everything.RAN <= reward[-1][0] - START <= everything.RAN + everything.EVERY
    of_run = View(first, end, {**everything.VARIABLES, "run": OVER}, interval=everything.EVERY)
    training = pen.draw(all_.answered("training", of_run))
    gpus = {each["name"] for each in training["GPU utilisation"] if each["name"].startswith("GPU ")}
    assert gpus == {f"GPU {gpu} at {BOX}" for gpu in everything.USED[OVER]}

"""Every query of every dashboard on a real Prometheus: no run, a finished one, 300, odd names, two clusters.

What real exporters serve lies in blocks, each situation at its own time: one Prometheus answers for all.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter.http.exposition import escape
from stepwatch.render.dashboard import CURVE_COLOURS, assemble
from stepwatch.rules.lines import Line
from stepwatch.rules.subjects import SHOWN_STATE
from stepwatch.system import http_client
from tests import own_logs
from tests.grafana.conftest import Json
from tests.grafana.drawn import Drawing, drawing
from tests.grafana.queries import View, ask, marks_of, panels_of
from tests.grafana.scraped import SCRAPED, SERVERS
from tests.grafana.stored import Sample, scraped, serving, store
from tests.real import Server, eventually, free_port
from tests.rules.rendered import CHECKOUT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

VERSIONS = ("2.42", "3.13")
START, LONG, EVERY = 1_700_006_400, 600, 60
"""Seconds: of the first situation, that each lasts, and between samples."""
MANY = 300
FINISHED, SICK = "ppo/done", "grpo/sick"
ODD = ("ppo/a|b", 'say "hi"', "it's 1+1=2 (or $3)", "a.b*c[0]^{2}", "强化/学习 run")
UNQUOTED = ("back\\slash", "~`tick`")
"""Grafana's formats quote neither character: such a run cannot be chosen, and the others must not suffer."""
BOX = "box-1:9411"


class Situation(NamedTuple):
    """What is on show: the runs, the sickest first, and when."""

    name: str
    start: int
    runs: tuple[str, ...]

    def view(self, run: str | None = None, **chosen: str | Sequence[str]) -> View:
        every = dict.fromkeys(("folder", "framework", "state", "server", "machine"), ".*")
        shown = run or next(iter(self.runs), "")
        runs = self.runs[: len(ODD)] or [""]
        variables = {**every, "run": shown, "baseline": shown, "runs": runs, "instance": BOX}
        variables |= {"reach": "0.5", "band": str(4 * EVERY), **chosen}
        return View(self.start, self.start + LONG - EVERY, variables, interval=EVERY)


NAMES = {
    "nothing": (),
    "a finished run": (FINISHED,),
    "300 runs": (SICK, *(f"team-{number % 30}/run-{number}" for number in range(MANY - 1))),
    "odd names": (*ODD, *UNQUOTED),
    "twice": (SICK, FINISHED),
    "64 machines": (SICK, FINISHED),
    "34 runs": (SICK, *(f"grpo/qwen2.5-7b-gsm8k-lr1e-6-kl1e-3-seed-{number}" for number in range(33))),
}
SITUATIONS = tuple(
    Situation(name, START + number * 2 * LONG, runs) for number, (name, runs) in enumerate(NAMES.items())
)
"""The runs of `twice` are reported by two exporters, and each is there in two clusters."""
COMPONENTS = tuple(f"part {number}" for number in range(10))
"""Of the reward of the sick run among 64 machines, the lowest first."""
AT_A_GLANCE = 8
"""How many entries a legend may have."""


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what all situations have stored."""
    folder = tmp_path_factory.mktemp("stored")
    page, gpus = pages(folder)
    store(folder, (text for each in SITUATIONS for text in stored(each, page, gpus)))
    return folder


def pages(folder: Path) -> tuple[dict[str, list[str]], str]:
    """Lines about a finished run and a sick one, and the page about GPUs, of the real exporters."""
    runs = folder / "runs"
    for name, log in ((FINISHED, own_logs.HEALTHY), (SICK, own_logs.SICK)):
        (runs / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, runs / f"{name}.log")
    ours = read("exporter.runs", f"--path={runs}", until=f'rl_step{{run="{SICK}"}} 60')
    lines = [line for line in ours.splitlines() if not line.startswith("#")]
    found = {name: [line for line in lines if f'run="{name}"' in line] for name in (FINISHED, SICK)}
    found[""] = [line for line in lines if 'run="' not in line]
    return found, read("exporter.gpu", "--backend=demo", until="gpu_power_watts{")


def read(module: str, *options: str, until: str) -> str:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", module, f"--port={port}", *options]
    with Server(command, f"{url}/-/healthy", cwd=CHECKOUT):
        eventually(lambda: until in (http_client.read(f"{url}/metrics") or ""), pause=0.2)
        return http_client.read(f"{url}/metrics") or ""


def stored(situation: Situation, page: dict[str, list[str]], gpus: str) -> Iterator[str]:
    times = range(situation.start, situation.start + LONG, EVERY)
    for series, value in samples(situation, page, gpus):
        course = next(course for pattern, course in COURSES if re.match(pattern, series))
        yield "".join(f"{series} {course(value, index)} {at}\n" for index, at in enumerate(times))


MOVED = (
    *("reward", "kl", "entropy", "grad_norm", "response_length", "policy_loss", "step_seconds"),
    *("tokens_per_second", "policy_kl", "policy_clip_ratio", "truncated_ratio", "rollout_seconds"),
)


def moved(value: float, index: int, *, by: float) -> float:
    """A signal that leaves its band at the end."""
    return value + index % 2 + by * (index > LONG // EVERY - 3)


COURSES: tuple[tuple[str, Callable[[float, int], float]], ...] = (
    (r".*(_total|_bucket|_sum|_count)\{", lambda value, index: value + index),
    *((rf"rl_{name}\{{", partial(moved, by=100 + number)) for number, name in enumerate(MOVED)),
    ("", lambda value, _: value),
)
"""Values by the number of the sample: what counts rises; some signals leave their band at the end, each
further than the one before."""


def samples(situation: Situation, page: dict[str, list[str]], gpus: str) -> Iterator[Sample]:
    twice = situation.name == "twice"
    about = [
        line.replace(f'run="{like}"', f'run="{escape(run)}"')
        for run in situation.runs
        for like in [FINISHED if run == FINISHED else SICK]
        for line in page[like]
    ]
    text = "\n".join((*page[""], *about))
    for cluster, exporter in product(("east", "west") if twice else ("",), "ab" if twice else "a"):
        more = {"cluster": cluster} if cluster else {}
        yield from scraped(text, "runs", f"exporter-{exporter}:9410", **more)
        for run in situation.runs if exporter == "a" else ():
            labels = f'run="{escape(run)}"' + (f',cluster="{cluster}"' if cluster else "")
            yield f"{SHOWN_STATE}{{{labels}}}", 1
        for run, (name, severity) in product(in_need(situation), ALERTS):
            labels = f'alertname="{name}",severity="{severity}",run="{escape(run)}"'
            labels += f',cluster="{cluster}"' if cluster else ""
            if exporter == "a":
                yield f'ALERTS{{alertstate="firing",{labels}}}', 1
                yield f"rl_alert_onset_timestamp_seconds{{{labels}}}", situation.start + 60
                yield f"rl_alert_onset_step{{{labels}}}", 34
        for gpu in range(8) if situation.runs and exporter == "a" else ():
            series = f'rl_run_gpu{{run="{escape(situation.runs[0])}",gpu="{gpu}",instance="{BOX}"'
            yield series + (f',cluster="{cluster}"}}' if cluster else "}"), 1
        for machine in range(64) if situation.name == "64 machines" and exporter == "a" else ():
            yield from scraped("\n".join(SCRAPED["node"]()), "node", f"node-{machine}:9100", role="host")
        for number, component in enumerate(COMPONENTS if situation.name == "64 machines" else ()):
            yield f'rl_reward_component{{run="{SICK}",component="{component}"}}', number / 10
        yield from scraped(gpus, "gpu", BOX if exporter == "a" else "box-2:9411", **more)
        if situation.runs:
            for name, served in SCRAPED.items():
                role = {"role": "rollout"} if name in SERVERS else {}
                yield from scraped("\n".join(served()), name, f"{name}-{exporter}:8000", **role, **more)


def in_need(situation: Situation) -> tuple[str, ...]:
    """The runs about which alerts fire: all of a few, a third of many."""
    return situation.runs[: max(len(NAMES["odd names"]), len(situation.runs) // 3)]


ALERTS = (("KLHigh", "warning"), ("KLExplosion", "critical"), ("Stalled", "warning"))


@pytest.fixture(scope="module", name="url", params=VERSIONS)
def _url(data: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    with serving(request.param, data) as server:
        yield server.url


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name.replace(" ", "-"))
def test_every_query_of_every_dashboard_is_answered_and_without_doubles(
    default: dict[str, Json], url: str, situation: Situation
) -> None:
    view, wrong = situation.view(), []
    for uid, dashboard in default.items():
        for panel in panels_of(dashboard):
            for target in panel["targets"]:
                where = f"{uid}, {panel['title']} {target['refId']}"
                try:
                    found = ask(url, target, view)["result"]
                except AssertionError as problem:
                    wrong.append(f"{where}: {str(problem).splitlines()[0]}")
                    continue
                assert len({json.dumps(each["metric"]) for each in found}) == len(found), where
        for mark in dashboard["annotations"]["list"]:
            marks_of(url, mark, view)

    assert not wrong, "\n".join(wrong)


def figures(dashboard: Json, url: str, view: View, title: str) -> list[list[Json]]:
    (panel,) = (each for each in panels_of(dashboard) if each["title"] == title)
    return [ask(url, target, view)["result"] for target in panel["targets"]]


def situation_of(name: str) -> Situation:
    return next(each for each in SITUATIONS if each.name == name)


def test_all_300_runs_and_their_folders_can_be_chosen(default: dict[str, Json], url: str) -> None:
    situation = situation_of("300 runs")
    folders = sorted({f"{run.partition('/')[0]}/" for run in situation.runs})
    view = situation.view(folder=folders, runs=situation.runs)
    (states,) = figures(default["stepwatch-runs"], url, view, "States")
    steps, *_ = figures(default["stepwatch-compare"], url, view, "Side by side")

    assert len(states) == len(steps) == MANY


@pytest.fixture(scope="module", name="pen")
def _pen() -> Iterator[Drawing]:
    with drawing() as found:
        yield found


def test_a_legend_is_read_at_a_glance_however_many_gpus_machines_and_signals_there_are(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    too_long = {}
    for uid, dashboard in default.items():
        shown = pen.show(dashboard, url, situation_of("64 machines").view())
        for panel in panels_of(dashboard):
            if panel["type"] in {"timeseries", "trend"}:
                names = [each["name"] for each in shown[panel["title"]] if each["legend"]]
                if len(set(names) - {"step"}) > AT_A_GLANCE:
                    too_long[uid, panel["title"]] = names
        if uid == "stepwatch-nodes":
            assert len(shown["Memory"]) > 64
        if uid == "stepwatch-diagnose":
            assert len(shown["What moved first"]) == AT_A_GLANCE
    assert not too_long


def test_signals_that_moved_are_rows_in_the_order_of_the_table(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    """All of them at one step, so that their peaks decide."""
    found = pen.show(default["stepwatch-diagnose"], url, situation_of("64 machines").view())
    table = [row["signal"]["text"] for row in found["How far each moved"]]

    assert len({row["step"]["text"] for row in found["How far each moved"]}) == 1
    assert len(table) > AT_A_GLANCE
    assert [row["name"] for row in found["What moved first"]] == table[:AT_A_GLANCE]
    assert table == [name for name in reversed(MOVED) if name in table]


@pytest.mark.parametrize("runs", [34, MANY])
def test_of_many_runs_those_in_need_stand_first_in_the_tallest_panel_and_no_column_is_cut(
    default: dict[str, Json], url: str, pen: Drawing, runs: int
) -> None:
    """Defect 4. On a screen of 1600 pixels; a run is known by the end of its name."""
    dashboard, situation = default["stepwatch-runs"], situation_of(f"{runs} runs")
    rows = pen.show(dashboard, url, situation.view())["All runs"]
    sick = set(in_need(situation))
    texts = pen.texts()["All runs"]
    heights = {panel["title"]: panel["gridPos"]["h"] for panel in panels_of(dashboard)}
    names = [row["run"]["text"] for row in rows]

    assert sorted(names) == sorted(situation.runs)
    assert set(names[: len(sick)]) == sick
    assert all((row["severity"]["text"] == "critical") == (row["run"]["text"] in sick) for row in rows)
    assert len([height for height in heights.values() if height >= heights["All runs"]]) == 1
    seen = [each.text for each in texts if each.text in set(names) and each.kind == "other"]
    assert seen == names[: len(seen)]
    assert len(seen) >= 9
    assert [each.text for each in texts if each.within < 0.99] == []


def test_components_of_the_reward_have_colours_of_their_own(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    found = pen.show(default["stepwatch-training"], url, situation_of("64 machines").view())
    curves = found["Reward components"]
    legend = [each for each in curves if each["legend"]]

    assert {each["name"] for each in curves} == set(COMPONENTS)
    assert [each["name"] for each in legend] == list(reversed(COMPONENTS))[:AT_A_GLANCE]
    assert [each["color"] for each in legend] == list(CURVE_COLOURS[:AT_A_GLANCE])
    assert {each["color"].lower() for each in legend} <= pen.colours("Reward components")


def test_compare_opens_with_the_sickest_run_against_the_newest_that_finished(
    default: dict[str, Json], url: str
) -> None:
    dashboard, situation = default["stepwatch-compare"], situation_of("64 machines")
    (first, *_), (against, *_) = (
        found(dashboard, url, situation, name, runs=[SICK]) for name in ("runs", "baseline")
    )
    itself = found(dashboard, url, situation, "baseline", runs=[FINISHED])

    assert (first, against) == (SICK, FINISHED)
    assert itself == [SICK, FINISHED]


@pytest.mark.parametrize("run", ODD)
def test_a_run_is_shown_whatever_its_name(default: dict[str, Json], url: str, run: str) -> None:
    folder = f"{run.rpartition('/')[0]}/" if "/" in run else ".*"
    view = situation_of("odd names").view(run, runs=[run], folder=folder)
    (state,), (step,) = (
        figures(default["stepwatch-training"], url, view, "State")[0],
        figures(default["stepwatch-training"], url, view, "Step")[0],
    )
    compared, *_ = figures(default["stepwatch-compare"], url, view, "Side by side")
    alerts, _ = figures(default["stepwatch-diagnose"], url, view, "Alerts")
    states = figures(default["stepwatch-runs"], url, view, "States")[0]

    assert (state["metric"]["run"], step["metric"]["run"], step["value"][1]) == (run, run, "60")
    assert [each["metric"]["run"] for each in compared] == [run]
    assert {each["metric"]["alertname"] for each in alerts} == {name for name, _ in ALERTS}
    assert run in {each["metric"]["run"] for each in states}


def test_a_variable_finds_every_run_whatever_its_name(default: dict[str, Json], url: str) -> None:
    situation = situation_of("odd names")
    by_need, all_of_them = (
        found(default[uid], url, situation, name)
        for uid, name in (("stepwatch-training", "run"), ("stepwatch-compare", "runs"))
    )

    assert sorted(by_need) == sorted(situation.runs)
    assert sorted(all_of_them) == sorted(situation.runs)


def found(
    dashboard: Json, url: str, situation: Situation, name: str, **chosen: str | Sequence[str]
) -> list[str]:
    """Return what a variable offers, in its order, as Grafana works it out."""
    (variable,) = (each for each in dashboard["templating"]["list"] if each["name"] == name)
    asked, view = variable["query"]["query"], situation.view(**chosen)
    if values := re.fullmatch(r"label_values\((.+), (\w+)\)", asked):
        data = get(
            url, f"label/{values[2]}/values", {"match[]": values[1], "start": view.start, "end": view.end}
        )
        texts = list(data)
    else:
        (expr,) = re.fullmatch(r"query_result\((.+)\)", asked).groups()  # type: ignore[union-attr]
        texts = [
            "{"
            + ",".join(f'{key}="{text}"' for key, text in each["metric"].items())
            + f"}} {each['value'][1]}"
            for each in ask(url, {"expr": expr, "instant": True}, view)["result"]
        ]
    pattern = variable.get("regex", "").strip("/")
    return [match[1] for text in texts if (match := re.search(pattern, text))] if pattern else texts


def get(url: str, path: str, asked: dict[str, object]) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(asked)}", timeout=30) as answer:
        return json.load(answer)["data"]


@pytest.mark.parametrize(
    ("limit", "field", "drawn"),
    [
        (6, {}, True),
        (6.5, {}, False),
        (1.3, {}, True),
        (0.9, {}, False),
        (7, {"min": 0}, True),
        (7.1, {"min": 0}, False),
        (0.9, {"min": 0}, True),
    ],
)
def test_a_limit_is_drawn_where_it_does_not_flatten_the_curve(
    url: str, limit: float, field: Json, drawn: bool
) -> None:
    """The curve goes from 3 to 4 on an axis of its own, or is 3 on one that begins at 0."""
    view = situation_of("nothing").view()
    curve = "vector(3)" if field else f"3 + (vector(time()) - {view.start}) / {view.end - view.start}"
    query = {"legend": "curve", "expr": curve, "curve": {"signal": "signal"}}
    look = {"type": "timeseries", "field": {}, "options": {}}
    panel = {"title": "Curve", "description": "Curve.", "unit": "none", "look": look, "queries": [query]}
    rows = [{"height": 8, "panels": [{**panel, "field": field}]}]
    line = Line("A", "A", "critical", "signal", "high", True, "uid", f"vector({limit})", None, frozenset())
    (made,) = assemble({"uid": "uid", "title": "Title", "rows": rows}, [line])["panels"]

    assert bool(ask(url, made["targets"][1], view)["result"]) == drawn

"""How soon panels of the dashboards have their data: a week of 100 runs, 8 GPUs and 5 rollout servers."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from promql_parser import MatchOp, VectorSelector

from benchmarks import logs
from benchmarks.measure import ROOT, RunExporter, get, quantiles, seconds, table
from stepwatch.alerts.model.runs import SHOWN_STATE
from stepwatch.config.deployment import InContainers
from stepwatch.config.models import Config
from stepwatch.render.generator import render_all
from tests.grafana.queries import Json, View, ask, panels_of
from tests.grafana.scraped import SCRAPED, SERVERS
from tests.grafana.stored import scraped, serving, store
from tests.real import PrometheusServer, Server, eventually, free_port
from tests.rules.expressions import parse, selectors

RUNS, SHOWN, SICK = 100, 8, 20
"""All runs; those that Compare shows; those of which two alerts fire for a third of each day."""
DAY, DAYS = 86_400, 7
END = 1_700_006_400 // DAY * DAY
STEP_SECONDS = 60
"""Between two steps of a run: until the next, its values stay."""
RECENT = 3600
"""Seconds at the end for which all series have samples."""
ROUNDS, WIDTH, COLUMNS, SLOWEST = 3, 1600, 24, 8
SHAPES = 8
"""Courses that values take."""

Labels = Mapping[str, str]
INSIDE = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def dashboards() -> Iterator[str]:
    """Every panel of every dashboard, as wide as on a screen of 1600 pixels, with a week on show."""
    return _measured(interval=60)


def dashboards_at_5_s() -> Iterator[str]:
    """The same with a sample every 5 s, as by default: twelve times as many."""
    return _measured(interval=5)


def _measured(interval: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stepwatch-dashboards-") as name:
        folder = Path(name)
        box, series = _series()
        panels = list(_panels(box))
        samples = _fill(folder, panels, series, interval)
        yield f"{len(series):,} series, {samples / 1e6:.0f} million samples.\n"
        for version in ("2.42", "3.13"):
            with serving(version, folder) as server:
                measured = [_measure(panel, server) for panel in panels]
            yield f"Prometheus {version}:\n"
            yield from _by_dashboard(measured)
            yield ""
            yield from _slowest(measured)
            yield ""


class Panel(NamedTuple):
    """What one panel, or all marks, of a dashboard ask, each query with whether it is one about a time."""

    dashboard: str
    title: str
    asked: tuple[tuple[str, bool], ...]
    view: View

    def load(self, url: str) -> None:
        """Ask as Grafana 10 does: one query after the other."""
        for expr, instant in self.asked:
            ask(url, {"expr": expr, "instant": instant}, self.view)

    def bare(self, url: str) -> None:
        """Ask for the same series by name and labels only."""
        for expr, instant in self.asked:
            for selector in dict.fromkeys(map(str, self.selectors(expr))):
                ask(url, {"expr": selector, "instant": instant}, self.view)

    def selectors(self, expr: str) -> list[VectorSelector]:
        """Return what a query reads."""
        return selectors(parse(self.view.expression(expr)))


class Measured(NamedTuple):
    """Seconds that a panel took in each round, and those of a processor; of bare selectors once."""

    panel: Panel
    wall: list[float]
    used: list[float]
    bare: float


def _measure(panel: Panel, server: PrometheusServer) -> Measured:
    rounds = [_load(panel.load, server) for _ in range(ROUNDS)]
    return Measured(
        panel, [wall for wall, _ in rounds], [used for _, used in rounds], _load(panel.bare, server)[1]
    )


def _load(ask: Callable[[str], None], server: PrometheusServer) -> tuple[float, float]:
    before = _processor_seconds(server.pid)
    return seconds(ask, server.url), _processor_seconds(server.pid) - before


def _processor_seconds(pid: int) -> float:
    """By the scheduler's count, which is finer than that of `measure.shares`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@table(
    "dashboard", "panels", "queries", "answered: p50, ms", "p95, ms",
    "processor: p50, ms", "p95, ms", "worst, ms", "bare selectors, all, s", "times as long",
)  # fmt: skip
def _by_dashboard(measured: Sequence[Measured]) -> Iterator[Sequence[object]]:
    names = dict.fromkeys(each.panel.dashboard for each in measured)
    for name in (*names, "all"):
        here = [each for each in measured if name in (each.panel.dashboard, "all")]
        wall = quantiles([1e3 * taken for each in here for taken in each.wall], 0.5, 0.95)
        used = quantiles([1e3 * taken for each in here for taken in each.used], 0.5, 0.95, 1)
        bare = sum(each.bare for each in here)
        whole = sum(min(each.used) for each in here)
        queries = sum(len(each.panel.asked) for each in here)
        times = (f"{each:.0f}" for each in (*wall, *used))
        yield name, len(here), queries, *times, f"{bare:.2f}", f"{whole / bare:.1f}"


@table("dashboard", "panel", "queries", "processor, least, ms", "bare selectors, ms")
def _slowest(measured: Sequence[Measured]) -> Iterator[Sequence[object]]:
    """The panels that take most."""
    for each in sorted(measured, key=lambda each: -min(each.used))[:SLOWEST]:
        title, queries = each.panel.title, len(each.panel.asked)
        yield each.panel.dashboard, title, queries, f"{1e3 * min(each.used):.0f}", f"{1e3 * each.bare:.0f}"


def _panels(box: str) -> Iterator[Panel]:
    """All panels of the default configuration, with what a person chose last."""
    runs = [f"run-{number}" for number in range(SHOWN)]
    every = dict.fromkeys(("folder", "framework", "state", "server", "machine"), ".*")
    chosen = {**every, "run": runs[0], "baseline": runs[0], "runs": runs, "instance": box, "reach": "0.5"}
    chosen["band"] = str(50 * STEP_SECONDS)
    folder = PurePosixPath("grafana/generated/dashboards")
    for path, data in render_all(Config(), ROOT, lambda _: InContainers()).items():
        if path.parent != folder:
            continue
        dashboard: Json = json.loads(data)
        for panel in panels_of(dashboard):
            points = round(WIDTH * panel["gridPos"]["w"] / COLUMNS)
            asked = tuple((each["expr"], each["instant"]) for each in panel["targets"])
            yield Panel(
                dashboard["title"], panel["title"], asked, View(END - DAYS * DAY, END, chosen, points=points)
            )
        if marks := dashboard["annotations"]["list"]:
            asked = tuple((each["expr"], False) for each in marks)
            view = View(END - DAYS * DAY, END, chosen, points=WIDTH)
            yield Panel(dashboard["title"], "(marks)", asked, view)


def _series() -> tuple[str, list[tuple[str, float]]]:
    """The address of the GPUs, and every series of exporters' pages and of alerts with its last value."""
    found: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs.runs(Path(folder), RUNS)
        with RunExporter(Path(folder)) as exporter:
            exporter.wait_for_runs(RUNS)
            found += scraped(exporter.page().decode(), "runs", "exporter:9410")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "exporter.gpu", "--backend=demo", f"--port={port}"]
    with Server(command, f"{address}/-/healthy", cwd=ROOT):
        eventually(lambda: b"gpu_up{" in get(f"{address}/metrics"), limit=60)
        found += scraped(get(f"{address}/metrics").decode(), "gpu", box := "box-1:9411")
    for name, page in SCRAPED.items():
        role = {"role": "rollout"} if name in SERVERS else {}
        found += scraped("\n".join(page()), name, f"{name}:8000", **role)
    return box, [*found, *_recorded()]


def _recorded() -> Iterator[tuple[str, float]]:
    """What rules leave behind: states of runs, and alerts."""
    for number in range(RUNS):
        yield f'{SHOWN_STATE}{{run="run-{number}"}}', 6
    for number in range(SICK):
        for name, severity in (("KLHigh", "warning"), ("KLExplosion", "critical")):
            labels = f'alertname="{name}",severity="{severity}",topic="kl",run="run-{number}"'
            yield f'ALERTS{{alertstate="firing",{labels}}}', 1
            yield f"rl_alert_onset_timestamp_seconds{{{labels}}}", END
            yield f"rl_alert_onset_step{{{labels}}}", 60


def _fill(folder: Path, panels: Sequence[Panel], series: Sequence[tuple[str, float]], interval: int) -> int:
    """Make blocks of a day each, with a sample every so many seconds. Returns the number of samples.

    Series of which the panels read more than the last value have samples of the whole week, the others of its
    last hour.
    """
    parsed = [(text, value, _labels(text)) for text, value in series]
    week = _read_over_time(panels, parsed)
    total = 0
    for day in range(DAYS):
        last = END - (DAYS - day - 1) * DAY
        courses, recent = _Courses(last - DAY, last, interval), _Courses(last - RECENT, last, interval)

        def text(day: int = day, whole: _Courses = courses, end: _Courses = recent) -> Iterator[str]:
            nonlocal total
            for index, (name, value, labels) in enumerate(parsed):
                if name in week or day == DAYS - 1:
                    samples = (whole if name in week else end).of(index, value, labels)
                    total += len(samples)
                    yield name + name.join(samples)

        store(folder, text())
    return total


def _read_over_time(panels: Sequence[Panel], series: Sequence[tuple[str, float, Labels]]) -> frozenset[str]:
    """Series of which some panel reads more than the last value."""
    by_name: dict[str, list[VectorSelector]] = {}
    for panel in panels:
        for expr, instant in panel.asked:
            if not instant or "[" in expr:
                for selector in panel.selectors(expr):
                    by_name.setdefault(selector.name or "", []).append(selector)
    return frozenset(
        text
        for text, _, labels in series
        if any(_selects(each, labels) for name in (labels["__name__"], "") for each in by_name.get(name, ()))
    )


class _Courses:
    """Samples of some time, as text."""

    def __init__(self, first: int, last: int, interval: int) -> None:
        self._times = range(first, last, interval)
        self._known: dict[tuple[str, float], list[str]] = {}

    def of(self, index: int, value: float, labels: Labels) -> list[str]:
        """Samples of a series: what counts rises, times go by, measured values vary, others stay."""
        course = _course(labels["__name__"], index, value)
        if course not in self._known:
            self._known[course] = [f" {value} {time}\n" for time, value in _values(*course, self._times)]
        return self._known[course]


def _course(name: str, index: int, value: float) -> tuple[str, float]:
    if name.startswith(("ALERTS", "rl_alert")):
        return "onset" if name == "rl_alert_onset_timestamp_seconds" else "alert", value
    if name.endswith(("_total", "_bucket", "_sum", "_count")):
        return "counter", index % SHAPES + 1
    if name == "rl_step" or "timestamp" in name:
        return "step", 1 if name == "rl_step" else STEP_SECONDS
    if value in (0, 1) or name.startswith(("rl_run", "rl_total")):
        return "constant", value
    return "noise", index % SHAPES


def _values(kind: str, number: float, times: range) -> Iterator[tuple[int, float]]:
    """Values by time. Alerts fire in the last third of each day."""
    dice = random.Random(number)
    noise = 1.0
    for time in times:
        if kind == "noise" and time % STEP_SECONDS == 0:
            noise = round(dice.gauss(1, 0.05), 6)
        if kind not in ("alert", "onset") or time % DAY >= DAY * 2 // 3:
            yield (
                time,
                {
                    "alert": number,
                    "onset": time - time % (DAY // 3),
                    "counter": (time - END + DAYS * DAY) * number,
                    "step": time // STEP_SECONDS * number,
                    "constant": number,
                    "noise": noise,
                }[kind],
            )


def _labels(text: str) -> dict[str, str]:
    name, _, inside = text.partition("{")
    return {"__name__": name, **dict(INSIDE.findall(inside))}


def _selects(selector: VectorSelector, labels: Labels) -> bool:
    for each in selector.matchers.matchers:
        found = labels.get(each.name, "")
        exact = each.op in (MatchOp.Equal, MatchOp.NotEqual)
        fits = each.value == found if exact else bool(re.fullmatch(each.value, found))
        if fits == (each.op in (MatchOp.NotEqual, MatchOp.NotRe)):
            return False
    return True

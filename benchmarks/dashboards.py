"""How soon panels of the dashboards have their data: a week of 100 runs, 8 or 512 GPUs, 5 rollout servers."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import promql_parser
from promql_parser import MatchOp, VectorSelector

from benchmarks import logs
from benchmarks.measure import ROOT, RunExporter, get, quantiles, seconds, table
from stepwatch.config.deployment import InContainers
from stepwatch.config.models import Config
from stepwatch.render.generator import render_all
from stepwatch.rules.subjects import SHOWN_STATE
from tests.grafana.queries import Json, View, ask, panels_of
from tests.grafana.scraped import SCRAPED, SERVERS
from tests.grafana.stored import scraped, serving, store
from tests.real import PrometheusServer, Server, eventually, free_port

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
SELDOM = 600
"""Seconds between the samples of a series that a panel reads once another box is on show."""
VERSIONS = ("2.42", "3.13")

Labels = Mapping[str, str]
INSIDE = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def dashboards() -> Iterator[str]:
    """Every panel of every dashboard, as wide as on a screen of 1600 pixels, with a week on show."""
    return _measured(interval=60)


def dashboards_at_5_s() -> Iterator[str]:
    """The same with a sample every 5 s, as by default: twelve times as many."""
    return _measured(interval=5)


def dashboards_of_64_nodes() -> Iterator[str]:
    """A hub's, of 64 nodes with eight GPUs each, over which the runs are spread; a sample every 120 s."""
    return _measured(interval=120, nodes=64)


def _measured(interval: int, nodes: int = 0) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stepwatch-dashboards-") as name:
        folder = Path(name)
        box, series = _series(nodes)
        panels = list(_panels(box, Config(role="hub" if nodes else "all")))
        samples = _fill(folder, panels, series, interval)
        yield f"{len(series):,} series, {samples / 1e6:.0f} million samples.\n"
        for version in VERSIONS:
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
        found: list[VectorSelector] = []
        promql_parser.walk(
            promql_parser.parse(self.view.expression(expr)),
            lambda each: found.append(each) if isinstance(each, VectorSelector) else None,
        )
        return found


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


def _panels(box: str, config: Config) -> Iterator[Panel]:
    """All panels of a configuration, with what a person chose last."""
    runs = [f"run-{number}" for number in range(SHOWN)]
    every = dict.fromkeys(("folder", "framework", "state", "server", "machine"), ".*")
    chosen = {**every, "run": runs[0], "baseline": runs[0], "runs": runs, "instance": box, "reach": "0.5"}
    chosen["band"] = str(50 * STEP_SECONDS)
    chosen |= {"cluster": "", "clusters": ".*", "baseline_cluster": ""}
    folder = PurePosixPath("grafana/generated/dashboards")
    for path, data in render_all(config, ROOT, lambda _: InContainers()).items():
        if path.parent != folder:
            continue
        dashboard: Json = json.loads(data)
        for panel in panels_of(dashboard):
            points = panel.get("maxDataPoints") or round(WIDTH * panel["gridPos"]["w"] / COLUMNS)
            asked = tuple((each["expr"], each["instant"]) for each in panel["targets"])
            yield Panel(
                dashboard["title"], panel["title"], asked, View(END - DAYS * DAY, END, chosen, points=points)
            )
        if marks := dashboard["annotations"]["list"]:
            asked = tuple((each["expr"], False) for each in marks)
            view = View(END - DAYS * DAY, END, chosen, points=WIDTH)
            yield Panel(dashboard["title"], "(marks)", asked, view)


def _series(nodes: int) -> tuple[str, list[tuple[str, float]]]:
    """The address of some GPUs, and every series of exporters' pages and of rules with its last value.

    Args:
        nodes: That have an agent, each with GPUs, and between them all runs; 0 for one machine.
    """
    names = [f"n{number:02}" for number in range(1, nodes + 1)]
    with tempfile.TemporaryDirectory() as folder:
        logs.runs(Path(folder), RUNS)
        with RunExporter(Path(folder)) as exporter:
            exporter.wait_for_runs(RUNS)
            found = list(_of_runs(exporter.page().decode(), names))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "exporter.gpu", "--backend=demo", f"--port={port}"]
    with Server(command, f"{address}/-/healthy", cwd=ROOT):
        eventually(lambda: b"gpu_up{" in get(f"{address}/metrics"), limit=60)
        page = get(f"{address}/metrics").decode()
    gpus: list[tuple[str, float]] = []
    for number, name in enumerate(names):
        own = page.replace("GPU-", f"GPU-{number:04}")
        gpus += scraped(own, "gpu", f"{name}:9411", node=name)
        found += scraped("\n".join(SCRAPED["node"]()), "node", f"{name}:9100", role="host", node=name)
    box = f"{names[0]}:9411" if names else "box-1:9411"
    gpus = gpus or list(scraped(page, "gpu", box))
    for name, other in SCRAPED.items():
        if name != "node" or not names:
            role = {"role": "rollout"} if name in SERVERS else {}
            found += scraped("\n".join(other()), name, f"{name}:8000", **role)
    return box, [*found, *gpus, *_recorded([_labels(text) for text, _ in gpus if text.startswith("gpu_up{")])]


def _of_runs(page: str, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """The series of the runs: of one run exporter, or of one on each node, which has some of them."""
    for number, (text, value) in enumerate(scraped(page, "runs", "exporter:9410")):
        if names:
            run = re.search(r'run="run-(\d+)"', text)
            name = names[int(run[1] if run else number) % len(names)]
            text = text.replace('instance="exporter:9410"', f'instance="{name}:9410",node="{name}"')  # noqa: PLW2901
        yield text, value


def _recorded(gpus: Sequence[Labels]) -> Iterator[tuple[str, float]]:
    """What rules leave behind: states of runs, their GPUs and what these take, alerts."""
    for number in range(RUNS):
        yield f'{SHOWN_STATE}{{run="run-{number}"}}', 6
    used = dict.fromkeys(range(RUNS), 0)
    for number, each in enumerate(gpus):
        run = number * RUNS // len(gpus)
        used[run] += 1
        gpu = ",".join(f'{name}="{each[name]}"' for name in ("instance", "gpu", "uuid"))
        yield f'rl_run_gpu{{run="run-{run}",{gpu},by="process"}}', 1
        yield f'rl_gpu_clock_ratio{{run="run-{run}",{gpu},model="H100"}}', 0.9
    for run, count in used.items():
        if count:
            yield f'rl_run_power_watts{{run="run-{run}"}}', 600 * count
    for number in range(SICK):
        for name, severity in (("KLHigh", "warning"), ("KLExplosion", "critical")):
            labels = f'alertname="{name}",severity="{severity}",topic="kl",run="run-{number}"'
            yield f'ALERTS{{alertstate="firing",{labels}}}', 1
            yield f"rl_alert_onset_timestamp_seconds{{{labels}}}", END
            yield f"rl_alert_onset_step{{{labels}}}", 60


def _fill(folder: Path, panels: Sequence[Panel], series: Sequence[tuple[str, float]], interval: int) -> int:
    """Make blocks of a day each, with a sample every so many seconds. Returns the number of samples.

    Series of which the panels read more than the last value have samples of the whole week, the others of its
    last hour. What they would read of another box has samples of the whole week, but seldom.
    """
    parsed = [(text, value, _labels(text)) for text, value in series]
    week = _read_over_time(panels, parsed)
    seldom = _read_over_time(panels, parsed, of_any=True) - week
    total = 0
    for day in range(DAYS):
        last = END - (DAYS - day - 1) * DAY
        whole, end = _Courses(last - DAY, last, interval), _Courses(last - RECENT, last, interval)
        rare = _Courses(last - DAY, last - RECENT, SELDOM)

        def text(
            day: int = day, whole: _Courses = whole, rare: _Courses = rare, end: _Courses = end
        ) -> Iterator[str]:
            nonlocal total
            for index, (name, value, labels) in enumerate(parsed):
                courses = [whole] if name in week else [rare] if name in seldom else []
                if name not in week and day == DAYS - 1:
                    courses.append(end)
                samples = [sample for each in courses for sample in each.of(index, value, labels)]
                total += len(samples)
                if samples:
                    yield name + name.join(samples)

        store(folder, text())
    return total


def _read_over_time(
    panels: Sequence[Panel], series: Sequence[tuple[str, float, Labels]], *, of_any: bool = False
) -> frozenset[str]:
    """Series of which some panel reads more than the last value, or does with another instance on show."""
    other = {"instance"} if of_any else set()
    by_name: dict[str, list[VectorSelector]] = {}
    for panel in panels:
        for expr, instant in panel.asked:
            if not instant or "[" in expr:
                for selector in panel.selectors(expr):
                    by_name.setdefault(selector.name or "", []).append(selector)
    return frozenset(
        text
        for text, _, labels in series
        if any(
            _selects(each, labels, other)
            for name in (labels["__name__"], "")
            for each in by_name.get(name, ())
        )
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


def _selects(selector: VectorSelector, labels: Labels, other: Container[str]) -> bool:
    """Whether a selector has this series, whatever it says about some labels."""
    for each in selector.matchers.matchers:
        if each.name in other:
            continue
        found = labels.get(each.name, "")
        exact = each.op in (MatchOp.Equal, MatchOp.NotEqual)
        fits = each.value == found if exact else bool(re.fullmatch(each.value, found))
        if fits == (each.op in (MatchOp.NotEqual, MatchOp.NotRe)):
            return False
    return True

"""Draw the pictures of docs/dashboards.md, in six minutes: ``python -m tests.grafana.pictures``.

With ``--out FOLDER`` every dashboard in both themes and two widths, collapsed rows open, to be looked at.
With ``--prometheus URL`` from a Prometheus that has seen the demo for some minutes, at once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar

from typing_extensions import Self

from demo.scenario import SCENARIOS
from demo.trainer import Trainer
from stepwatch.deploy.native import stack as native
from tests.e2e.stack import PAIRS, ROOT, server
from tests.grafana.drawn import THEMES, WIDTHS, Drawing, drawing, height_of
from tests.grafana.queries import View
from tests.real import query
from tests.real.tools import newest
from tests.real.waiting import eventually
from tests.runs.light.screenshots import DOCS, Scene, shrink

GENERATED = "grafana/generated/dashboards"
SECONDS = 240.0
"""Of the demo: all that it promises fires within 180."""
SICK = "demo/kl-explodes"
YESTERDAY = "yesterday/healthy"
"""A run that ended, for comparison."""

CHOSEN = {
    "folder": ".*",
    "framework": ".*",
    "state": ".*",
    "server": ".*",
    "machine": ".*",
    "run": SICK,
    "runs": ["demo/healthy", SICK, YESTERDAY],
    "baseline": YESTERDAY,
    "reach": "0.3",
    "band": "30",
}
"""Values of all variables but ``instance``, the box of GPUs."""
OF_DASHBOARD = {"rollout": {"run": "demo/healthy"}}
"""Others of one dashboard."""
INCIDENT = {"diagnose": (55.0, 200.0)}
"""Seconds from the start of the run to the ends of what is shown, where it is not all: the incident, with
the steps before it."""

EXTRA = {("light", 1600): ("runs",), ("dark", 1024): ("training",)}
"""Of which dashboards the documents have more than the dark picture, 1600 pixels wide."""
PANELS = {
    "which-run": ("runs", "All runs"),
    "collapsed": ("training", "Reward"),
    "moved-first": ("diagnose", "What moved first"),
    "do-first": ("diagnose", "Alerts"),
    "compared": ("compare", "Reward"),
    "side-by-side": ("compare", "Side by side"),
    "step-by-phase": ("training", "Step by phase"),
    "held-out": ("training", "Held-out"),
    "reward-components": ("training", "Reward components"),
    "around": ("diagnose", "Around the run"),
    "silence": ("stack", "Can I trust silence?"),
    "rollout-idle": ("rollout", "Waiting for training"),
    "long-tail": ("rollout", "Request time"),
    "kv-cache": ("rollout", "KV cache"),
    "servers": ("rollout", "Servers side by side"),
    "machines": ("nodes", "Machines side by side"),
    "slow-gpu": ("gpu", "Side by side"),
}
"""The panels that answer the questions of the document, by the name of the picture."""


JUDGED = "demo/stagnates"
OF_PANEL = {"step-by-phase": JUDGED, "reward-components": JUDGED}
"""The run on show where it is not that of the dashboard: its judge fails, and steps wait for it."""


class Show(Scene):
    """The whole demo: trainers, servers, Ray, GPUs, and this machine; a run of yesterday, faster."""

    names: ClassVar[tuple[str, ...]] = (*Scene.names, "node")
    gpus: ClassVar[tuple[str, ...]] = (*Scene.gpus, "--sick=5")

    def __enter__(self) -> Self:
        program = newest("node_exporter") / "node_exporter"
        self._open.enter_context(server(native.Stack(self.config, self.state, self.runs).node(program)))
        self.find_demo()
        super().__enter__()
        self._open.enter_context(yesterday(self.runs))
        command = [sys.executable, "-m", "demo", "--path", str(self.runs)]
        process = self._open.enter_context(subprocess.Popen(command, cwd=ROOT))
        self._open.callback(process.terminate)
        return self


@contextmanager
def yesterday(runs: Path) -> Iterator[None]:
    """Have another healthy run write 600 steps in a minute and a half."""
    story = replace(SCENARIOS[0], name="healthy", served=False)
    trainer, stop = Trainer(story, runs / "yesterday", 2, 0.15, 600), Event()

    def train() -> None:
        for _ in range(600 + 2):
            if not stop.wait(0.15):
                trainer.tick()
        trainer.close()

    thread = Thread(target=train)
    thread.start()
    yield
    stop.set()
    thread.join()


@contextmanager
def demo() -> Iterator[tuple[str, Path]]:
    """Give the address of a Prometheus that has seen the demo, and the folder of dashboards beside it.

    Unlike the dashboards of the repository these have a receiver: *Stack* is green.
    """
    with tempfile.TemporaryDirectory() as folder, Show(Path(folder), PAIRS[-1]) as scene:
        sys.stderr.write(f"Waiting for {SECONDS:.0f} s of the demo ...\n")
        time.sleep(SECONDS)
        yield f"http://{scene.config.address('prometheus')}", scene.state.rendered / GENERATED


def main() -> None:
    """Write the pictures into docs/, or all of them into another folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prometheus", help="draw from this one, at http://host:port")
    parser.add_argument("--out", type=Path, help="draw every theme and width, into this folder")
    parser.add_argument("--only", nargs="*", default=[], help="names of dashboards, such as runs")
    options = parser.parse_args()
    with ExitStack() as open_:
        shipped = options.prometheus, ROOT / GENERATED
        url, dashboards = shipped if options.prometheus else open_.enter_context(demo())
        pen = open_.enter_context(drawing())
        eventually(lambda: query(url, "sum(vllm:num_requests_waiting) > 15"), pause=1)
        now = time.time()
        ((gpu, *_), (step, *_)) = (
            query(url, "gpu_up"),
            query(url, f'rl_run_start_timestamp_seconds{{run="{SICK}"}}'),
        )
        began = float(step["value"][1]) - 5
        for path in sorted(dashboards.glob("*.json")):
            if options.only and path.stem not in options.only:
                continue
            variables = {**CHOSEN, "instance": gpu["metric"]["instance"], **OF_DASHBOARD.get(path.stem, {})}
            if path.stem == "tutorial":
                (page,) = query(url, "verl_average_reward")
                variables["run"] = page["metric"]["instance"]
            first, last = INCIDENT.get(path.stem, (0.0, now - began))
            view = View(began + first, min(now, began + last), variables)
            draw(pen, path, url, view, options.out)


def draw(pen: Drawing, path: Path, url: str, view: View, out: Path | None) -> None:
    """Draw what is wanted of one dashboard."""
    dashboard, name = json.loads(path.read_text()), path.stem
    open_at_first = height_of(each for each in dashboard["panels"] if each["type"] != "row")
    for theme, width in itertools.product(THEMES, WIDTHS):
        usual = (theme, width) == (THEMES[0], WIDTHS[0])
        suffix = "" if usual else f"-{theme}-{width}"
        if not (out or usual or name in EXTRA.get((theme, width), ())):
            continue
        pen.show(dashboard, url, view, theme, width)
        if out:
            out.mkdir(parents=True, exist_ok=True)
            pen.picture(out / f"{name}{suffix}.png")
            continue
        whole = DOCS / f"dashboard-{name}{suffix}.png"
        pen.picture(whole, rows=open_at_first)
        shrink(whole)
        panels = [(kept, title) for kept, (of, title) in PANELS.items() if usual and of == name]
        for kept, title in sorted(panels, key=lambda panel: OF_PANEL.get(panel[0], "")):
            if kept in OF_PANEL:
                other = replace(view, variables={**view.variables, "run": OF_PANEL[kept]})
                pen.show(dashboard, url, other, theme, width)
            pen.picture(DOCS / f"panel-{kept}.png", title)
            shrink(DOCS / f"panel-{kept}.png")


if __name__ == "__main__":
    main()

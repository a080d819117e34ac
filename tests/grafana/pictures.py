"""Make the pictures of docs/dashboards.md, in five minutes: ``python -m tests.grafana.pictures``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.stack import PAIRS
from tests.e2e.writer import writing
from tests.grafana.drawn import drawing
from tests.grafana.queries import View
from tests.runs.light.screenshots import DOCS, LOGS, SECONDS, SICK, Scene, shrink


def main() -> None:
    """Write the pictures into docs/."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_:
        scene = open_.enter_context(Scene(Path(folder), PAIRS[-1]))
        began = time.time()
        for name, (log, rate) in LOGS.items():
            open_.enter_context(writing(log, scene.runs / f"{name}.log", f"--rate={rate}", "--stay"))
        sys.stderr.write(f"Waiting for {SECONDS:.0f} s of training ...\n")
        time.sleep(SECONDS)
        (gpu, *_) = scene.query("gpu_up")
        shown = {
            "runs": {"folder": ".*", "framework": ".*", "state": ".*"},
            "training": {"run": SICK},
            "diagnose": {"run": SICK, "band": "60"},
            "stack": {},
            "gpu": {"instance": gpu["metric"]["instance"]},
        }
        with drawing() as pen:
            for name, variables in shown.items():
                file = scene.state.rendered / f"grafana/generated/dashboards/{name}.json"
                view = View(began, time.time(), variables)
                whole = json.loads(file.read_text())
                closed = {**whole, "panels": [each for each in whole["panels"] if each["type"] != "row"]}
                pen.show(closed, f"http://{scene.config.address('prometheus')}", view)
                path = DOCS / f"dashboard-{name}.png"
                pen.picture(path)
                shrink(path)


if __name__ == "__main__":
    main()

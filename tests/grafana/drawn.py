"""Dashboards as a person sees them: a real Prometheus answers, Grafana's own libraries draw in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.grafana.queries import Json, View, ask, marks_of
from tests.real import grafana
from tests.runs.light.browser import Browser, started

WIDTHS = (1600, 1024)
THEMES = ("dark", "light")


def opened(dashboard: Json) -> list[Json]:
    """Return the panels on one page: collapsed rows opened below the others."""
    flat = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    y = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in flat)
    for row in dashboard["panels"]:
        if row["type"] == "row" and row["panels"]:
            flat += [{**panel, "gridPos": {**panel["gridPos"], "y": y}} for panel in row["panels"]]
            y += max(panel["gridPos"]["h"] for panel in row["panels"])
    return flat


@dataclass
class Drawing:
    """A browser with the libraries of a version; what it draws is what the last call asked for."""

    browser: Browser
    version: str

    def show(
        self, dashboard: Json, url: str, view: View, theme: str = "dark", width: int = 1600
    ) -> dict[str, list[Any]]:
        """Draw a dashboard, and return what is read on each panel by its title.

        Of a table the rows, with ``text``, ``color`` and ``links`` by column; of a stat each value; of curves
        and state timelines each series with its name, colour and texts.
        """
        panels = opened(dashboard)
        with ThreadPoolExecutor(4) as pool:
            jobs = {
                panel["id"]: {
                    target["refId"]: pool.submit(ask, url, target, view) for target in panel["targets"]
                }
                for panel in panels
            }
        answers = {
            number: {letter: job.result() for letter, job in found.items()} for number, found in jobs.items()
        }
        marks = [mark for each in dashboard["annotations"]["list"] for mark in marks_of(url, each, view)]
        request = {
            "panels": panels,
            "answers": answers,
            "marks": marks,
            "mode": theme,
            "width": width,
            "from": view.start * 1000,
            "to": view.end * 1000,
            "variables": {name: value for name, value in view.variables.items() if isinstance(value, str)},
        }
        height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * 38 + 20
        self.browser.size(width, height)
        self.browser.open(grafana.page(self.version).as_uri())
        self.browser.driver.set_script_timeout(120)
        found = self.browser.driver.execute_async_script(
            "const done = arguments[1]; window.show(arguments[0])"
            ".then((read) => done({read}), (error) => done({error: String(error.stack || error)}))",
            request,
        )
        assert "error" not in found, found["error"]
        return {panel["title"]: found["read"][str(panel["id"])] for panel in panels}

    def picture(self, path: Path) -> None:
        """Write what was drawn last."""
        time.sleep(0.3)
        self.browser.driver.save_screenshot(str(path))


@contextmanager
def drawing(version: str = grafana.USUAL) -> Iterator[Drawing]:
    """The browser, started; with Grafana's libraries of this version."""
    with started() as browser:
        browser.forget()
        yield Drawing(browser, version)

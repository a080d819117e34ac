"""Dashboards as a person sees them: a real Prometheus answers, Grafana's own libraries draw in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from tests.grafana.queries import Json, View, ask, marks_of
from tests.real import grafana
from tests.runs.light.browser import Browser, started

VERSIONS = {
    grafana.USUAL: grafana.USUAL,
    **{each: pytest.param(each, marks=pytest.mark.world) for each in grafana.OTHERS},
}
"""Parameters of the versions of Grafana that we promise to work on."""
DRAWING = [each for name, each in VERSIONS.items() if name not in grafana.ONLY_READ]
"""Those whose panels are drawn too."""
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


def height_of(panels: Iterable[Json]) -> int:
    """Return how many rows of the grid panels take."""
    return max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)


def _pixels(rows: int) -> int:
    return rows * 38 + 20


class Answered(NamedTuple):
    """The panels of a dashboard, the answers to their queries by id and letter, and marks."""

    panels: list[Json]
    answers: dict[int, dict[str, Json]]
    marks: list[Json]
    view: View

    def answers_of(self, title: str, letter: str) -> list[Json]:
        """Return the series of the answer to a query of a panel."""
        (number,) = (panel["id"] for panel in self.panels if panel["title"] == title)
        series: list[Json] = self.answers[number][letter]["result"]
        return series


def asked(dashboard: Json, url: str, view: View) -> Answered:
    """Have Prometheus answer all queries of a dashboard."""
    panels = opened(dashboard)
    with ThreadPoolExecutor(4) as pool:
        jobs = {
            panel["id"]: {
                target["refId"]: pool.submit(ask, url, target, view) for target in panel.get("targets", ())
            }
            for panel in panels
        }
    answers = {
        number: {letter: job.result() for letter, job in found.items()} for number, found in jobs.items()
    }
    marks = [mark for each in dashboard["annotations"]["list"] for mark in marks_of(url, each, view)]
    return Answered(panels, answers, marks, view)


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
        return self.draw(asked(dashboard, url, view), theme, width)

    def draw(self, answered: Answered, theme: str = "dark", width: int = 1600) -> dict[str, list[Any]]:
        """Draw a dashboard from answers that are there, and return the same as `show`."""
        panels, view = answered.panels, answered.view
        request = {
            "panels": panels,
            "answers": answered.answers,
            "marks": answered.marks,
            "mode": theme,
            "width": width,
            "from": view.start * 1000,
            "to": view.end * 1000,
            "variables": {name: value for name, value in view.variables.items() if isinstance(value, str)},
        }
        self.browser.size(width, _pixels(height_of(panels)))
        self.browser.open(grafana.page(self.version).as_uri())
        self.browser.driver.set_script_timeout(120)
        found = self.browser.driver.execute_async_script(
            "const done = arguments[1]; window.show(arguments[0])"
            ".then((read) => done({read}), (error) => done({error: String(error.stack || error)}))",
            request,
        )
        assert "error" not in found, found["error"]
        return {panel["title"]: found["read"][str(panel["id"])] for panel in panels}

    def picture(self, path: Path, title: str = "", rows: int = 0) -> None:
        """Write what was drawn last: all of it, its first rows of the grid, or the panel of that title."""
        time.sleep(1)  # on a busy machine the last curves come late
        driver = self.browser.driver
        if title:
            driver.find_element("css selector", f'section[title="{title}"]').screenshot(str(path))
        else:
            driver.save_screenshot(str(path))
        if rows:
            with Image.open(path) as picture:
                picture.crop((0, 0, picture.width, 8 + 38 * rows)).save(path)

    def colours(self, title: str) -> set[str]:
        """Return the colours of what was drawn last on a panel, of which there is much, as ``#rrggbb``."""
        script = """
            const found = {};
            for (const canvas of document.querySelectorAll(`section[title="${arguments[0]}"] canvas`)) {
                const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                for (let i = 0; i < data.length; i += 4) {
                    if (data[i + 3] > 200) {
                        const rgb = [...data.slice(i, i + 3)];
                        const name = rgb.map((at) => at.toString(16).padStart(2, '0')).join('');
                        found[`#${name}`] = (found[`#${name}`] ?? 0) + 1;
                    }
                }
            }
            return Object.keys(found).filter((name) => found[name] > 30)"""
        time.sleep(1)
        return set(self.browser.driver.execute_script(script, title))

    def texts(self) -> dict[str, list[Text]]:
        """Return what can be read in the drawing, by the titles of panels."""
        found = self.browser.tell(f"({_TEXTS})()")
        return {title: [Text(*each) for each in texts] for title, texts in found}

    def coloured(self) -> dict[str, int]:
        """Return how many pixels of each panel's canvases are neither grey nor empty."""
        found: dict[str, int] = self.browser.tell(f"({_COLOURED})()")
        return found

    def errors(self) -> list[str]:
        """Return what stands as an error in the console since this was last asked, but for missing fonts."""
        reported: list[Json] = self.browser.driver.get_log("browser")
        found = [each["message"] for each in reported if each["level"] == "SEVERE"]
        return [each for each in found if "/public/fonts/" not in each]


class Text(NamedTuple):
    """A line of text: the share of its width that is seen, and its kind: title, heading, legend or other."""

    text: str
    kind: str
    within: float
    left: float
    top: float
    right: float
    bottom: float

    def over(self, other: Text) -> bool:
        """Whether the two lie over each other by more than a rounded edge."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide > 2 and high > 4


_TEXTS = """() => [...document.querySelectorAll('section')].map((box) => {
    const meet = (a, b) => ({left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
        right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom)});
    const kinds = {title: 'h2', heading: '[role=columnheader], th', legend: 'button'};
    const kindOf = (part) => Object.keys(kinds).find((kind) => part.closest(kinds[kind])) ?? 'other';
    const texts = [], walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, part = node.parentElement, range = document.createRange();
        const hidden = part.closest('style, script') || !part.checkVisibility({visibilityProperty: true});
        if (hidden || !node.textContent.trim()) {
            continue;
        }
        let room = box.getBoundingClientRect();
        for (let up = part; up !== box; up = up.parentElement) {
            if (getComputedStyle(up).overflowX !== 'visible') {
                room = meet(room, up.getBoundingClientRect());
            }
        }
        range.selectNodeContents(node);
        for (const line of range.getClientRects()) {
            const seen = meet(room, line);
            if (line.width > 1 && seen.bottom - seen.top > 4) {
                texts.push([node.textContent.trim(), kindOf(part), (seen.right - seen.left) / line.width,
                    seen.left, seen.top, seen.right, seen.bottom]);
            }
        }
    }
    return [box.title, texts];
})"""
_COLOURED = """() => Object.fromEntries([...document.querySelectorAll('section')].map((box) => {
    let count = 0;
    for (const canvas of box.querySelectorAll('canvas')) {
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width || 1, canvas.height || 1);
        for (let at = 0; at < data.length; at += 4) {
            const rgb = [data[at], data[at + 1], data[at + 2]];
            count += data[at + 3] > 100 && Math.max(...rgb) - Math.min(...rgb) > 40;
        }
    }
    return [box.title, count];
}))"""


@contextmanager
def drawing(version: str = grafana.USUAL) -> Iterator[Drawing]:
    """The browser, started; with Grafana's libraries of this version."""
    with started() as browser:
        browser.forget()
        yield Drawing(browser, version)

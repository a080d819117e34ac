"""Pages made of templates: everything that they show is escaped, and what is missing is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2
from markupsafe import Markup

from exporter.drawing import svg
from exporter.drawing.chart import Chart
from exporter.drawing.legend import legend
from exporter.installation import adapt

TEMPLATES = Path(__file__).with_name("templates")


class _Loader(jinja2.FileSystemLoader):
    """Reads templates with the commands that they name as they are called here."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        source, path, current = super().get_source(environment, template)
        return adapt(source), path, current


def environment(folder: Path) -> jinja2.Environment:
    """Templates of a folder, which may use those of charts as well: ``chart.html.j2``, ``*.css``."""
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=_Loader([folder, TEMPLATES]),
    )
    made.globals |= {"draw": _drawn, "legend": legend}
    return made


def _drawn(chart: Chart) -> Markup:
    return Markup(svg.draw(chart))  # noqa: S704  (it escapes what it is given)

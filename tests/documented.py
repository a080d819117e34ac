"""Metrics of our own services, as docs/metrics.md lists them."""

from __future__ import annotations

import re

from tests.rules import served

Metric = tuple[str, str, frozenset[str]]


def shown_and_documented(page: str, heading: str) -> tuple[set[Metric], set[Metric]]:
    """Name, type and labels of each metric of ours: on a page, and below a heading of docs/metrics.md."""

    def labels(name: str) -> frozenset[str]:
        lines = re.findall(rf"^{name}{{.*}} ", page, re.MULTILINE)
        return frozenset(label for line in lines for label in re.findall(r'(\w+)="', line))

    types = re.findall(r"^# TYPE (stepwatch_\w+) (\w+)$", page, re.MULTILINE)
    section = served.PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    documented = {
        (name, kind, frozenset(re.findall(r"`(\w+)`", named)))
        for name, kind, _, named in served.DOCUMENTED.findall(section)
    }
    return {(name, kind, labels(name)) for name, kind in types}, documented

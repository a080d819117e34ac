"""Hours of simulated GPUs in a real Prometheus, and what fires then."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from exporter.gpu.backend import Settings
from exporter.gpu.demo import Demo
from stepwatch.schema.scalars import Duration
from stepwatch.system import http_client
from tests.gpu.box import Box
from tests.real import PrometheusServer

JsonObject = dict[str, Any]

SCRAPE = 15
"""Seconds from one sample, and one evaluation, to the next."""
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Fired(NamedTuple):
    """An alert that fired: its name and severity, of which box, and of which of its GPUs."""

    alert: str
    severity: str
    instance: str
    gpu: str


@dataclass(frozen=True)
class Watched:
    """A box of simulated GPUs that was watched for the last ``seconds``."""

    instance: str
    extras: Settings
    seconds: int

    def samples(self, metrics: Collection[str], end: int) -> Iterator[str]:
        """What its exporter served of these metrics, as OpenMetrics; ``end`` in seconds since 1970."""
        target = f'job="gpu",instance="{self.instance}"'
        for at, page in self._pages(end):
            yield f"up{{{target}}} 1 {at}\n"
            for name, labels, value in _SAMPLE.findall(page):
                if name in metrics:
                    yield f"{name}{{{','.join(filter(None, (target, labels)))}}} {value} {at}\n"

    def _pages(self, end: int) -> Iterator[tuple[int, str]]:
        now = 0.0
        box = Box(Demo(self.extras, clock=lambda: now), SCRAPE)
        for passed in range(0, self.seconds, SCRAPE):
            now = float(passed)
            at = end - self.seconds + passed
            yield at, box.page(now, at)


def load(server: PrometheusServer, samples: Iterable[str]) -> None:
    """Give a server that is not yet running a past."""
    whole = server.folder / "samples"
    with whole.open("w") as out:
        out.writelines(samples)
        out.write("# EOF\n")
    command = ["tsdb", "create-blocks-from", "openmetrics", "--quiet", whole, server.folder / "data"]
    subprocess.run([server.tool.tool, *command], check=True, capture_output=True)


def fired(url: str, rules: Iterable[JsonObject], start: int, end: int) -> set[Fired]:
    """Every alert of the rules that lasted as long as its rule waits, between two seconds since 1970."""
    return {
        Fired(rule["alert"], rule["labels"]["severity"], labels["instance"], labels.get("gpu", ""))
        for rule in rules
        for labels, times in _series(url, rule["expr"], start, end)
        if _lasted(times) >= Duration.parse(rule.get("for", "0s")).seconds
    }


def _series(url: str, expression: str, start: int, end: int) -> Iterator[tuple[dict[str, str], list[int]]]:
    """When each series of an expression had a value."""
    asked = {"query": expression, "start": start, "end": end, "step": SCRAPE}
    text = http_client.read(f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=60)
    assert text is not None, expression
    for each in json.loads(text)["data"]["result"]:
        yield each["metric"], [int(at) for at, _ in each["values"]]


def _lasted(times: list[int]) -> int:
    """How long it had one at most, without a gap."""
    longest, began = 0, times[0]
    for before, at in pairwise(times):
        began = began if at - before == SCRAPE else at
        longest = max(longest, at - began)
    return longest

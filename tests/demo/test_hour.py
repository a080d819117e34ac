"""A whole hour of the demo's quiet runs, record by record, under every rule about what a run logs."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo.story import STORIES
from demo.trainer import TOTAL, Trainer
from tests.real import PrometheusServer
from tests.rules import rendered, replay
from tests.rules.promtool import INTERVAL

pytestmark = pytest.mark.e2e

QUIET = {"healthy": set[str](), "stagnates": {"RewardStagnation"}}
"""What may fire, by run."""
MOST_POINTS = 10_000
"""Prometheus answers with no more than 11,000 a series."""


def log(folder: Path, name: str) -> Path:
    """All that a run writes until it is done, in the form that the replay reads."""
    story = next(story for story in STORIES if story.name == name)
    trainer = Trainer(replace(story, logger="console"), folder, seed=1, seconds=0.3)
    for _ in range(TOTAL + 1):
        trainer.tick()
    trainer.close()
    return trainer.path


@pytest.fixture(scope="module", name="fired")
def _fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The alerts that fire at some record, by run."""
    folder = tmp_path_factory.mktemp("hour")
    (folder / "prometheus.yml").write_text("global: {}\n")
    with (folder / "samples").open("w") as out:
        for name in QUIET:
            assert replay.write(name, log(folder, name), out) == {name: TOTAL + 1}
        out.write("# EOF\n")
    server = PrometheusServer("3.13", folder, options=("--storage.tsdb.retention.time=100y",))
    command = [server.tool.tool, "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*command, folder / "samples", server.folder / "data"], check=True)
    found: dict[str, set[str]] = {name: set() for name in QUIET}
    with server:
        for rule in rendered.rules("rl"):
            if rule["labels"]["topic"] != "progress":
                for run in runs(server.url, rule["expr"]):
                    found[run].add(rule["alert"])
    return found


def runs(url: str, expression: str) -> Iterator[str]:
    """The runs for which an expression holds at some record."""
    for first in range(0, TOTAL + 1, MOST_POINTS):
        start = replay.START + INTERVAL * first
        asked = {"query": expression, "start": start, "end": start + INTERVAL * MOST_POINTS, "step": INTERVAL}
        body = urllib.parse.urlencode(asked).encode()
        with urllib.request.urlopen(f"{url}/api/v1/query_range", body) as answer:
            yield from (result["metric"]["run"] for result in json.load(answer)["data"]["result"])


@pytest.mark.parametrize("run", QUIET)
def test_an_hour_raises_nothing_but_what_the_run_is_for(fired: dict[str, set[str]], run: str) -> None:
    assert fired[run] == QUIET[run]

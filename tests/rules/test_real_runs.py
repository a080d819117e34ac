"""The rules on real runs: the sick are told of in time, the healthy are left alone."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import yaml

from tests.real import PrometheusServer
from tests.rules import rendered, replay
from tests.rules.promtool import INTERVAL

pytestmark = pytest.mark.e2e

LABELS = replay.REAL_RUNS / "labels.yaml"


def _labels() -> dict[str, dict[str, Any]]:
    if not LABELS.exists():
        return {}
    known = yaml.safe_load(LABELS.read_text())
    return {name: label for name, label in known.items() if name.startswith(("verl_console/", "verl_csv/"))}


class Fired(NamedTuple):
    """A rule that fired for a run, first at this record (the first record is 1)."""

    alert: str
    severity: str
    topic: str
    record: int


@dataclass
class Verdicts:
    """What fired for each run."""

    records: dict[str, int] = field(default_factory=dict)
    fired: dict[str, list[Fired]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Every rule about what a run logs, evaluated by Prometheus at each record of each run."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "prometheus.yml").write_text("global: {}\n")
    found = Verdicts()
    with (folder / "samples").open("w") as out:
        for name in _labels():
            found.records[name] = replay.write(name, replay.REAL_RUNS / name, out)
        out.write("# EOF\n")
    server = PrometheusServer("3.13", folder, options=("--storage.tsdb.retention.time=100y",))
    command = [server.tool.tool, "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*command, folder / "samples", server.folder / "data"], check=True)
    with server:
        for rule in rendered.rules("rl"):
            if rule["labels"]["topic"] != "progress":
                for run, fired in _first(server.url, rule, found.records):
                    found.fired.setdefault(run, []).append(fired)
    return found


def _first(url: str, rule: dict[str, Any], records: dict[str, int]) -> Iterator[tuple[str, Fired]]:
    last = replay.START + INTERVAL * max(records.values())
    asked = {"query": rule["expr"], "start": replay.START, "end": last, "step": INTERVAL}
    with urllib.request.urlopen(
        f"{url}/api/v1/query_range", urllib.parse.urlencode(asked).encode()
    ) as answer:
        results = json.load(answer)["data"]["result"]
    for result in results:
        run, record = result["metric"]["run"], (result["values"][0][0] - replay.START) // INTERVAL
        if record <= records[run]:
            yield run, Fired(rule["alert"], rule["labels"]["severity"], rule["labels"]["topic"], record)


def test_real_runs_are_there() -> None:
    if not LABELS.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"there is no {LABELS}")
    assert len(_labels()) >= 22


@pytest.mark.parametrize("run", _labels())
def test_verdict_on_a_real_run(run: str, verdicts: Verdicts) -> None:
    label, fired = _labels()[run], verdicts.fired.get(run, [])
    in_time = [each for each in fired if each.alert in label.get("expect", ()) and each.record <= label["by"]]
    if "expect" in label:
        assert in_time, fired
    if label.get("page"):
        assert "critical" in {each.severity for each in in_time}, fired
    assert _false(label["verdict"], fired) == []


def _false(verdict: str, fired: list[Fired]) -> list[Fired]:
    """What must not fire on such a run."""
    match verdict:
        case "healthy":
            return fired
        case "flat":
            return [each for each in fired if each.severity == "critical"]
        case "borderline":
            return [each for each in fired if each.severity == "critical" and each.topic == "reward"]
        case "other":
            return [each for each in fired if each.topic == "reward"]
    return []

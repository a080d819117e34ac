"""Servers that come and go: verl's rewritten prometheus.yml, Ray's list, rl-insight's registrations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml

from tests.parity.product import exporting, read, rounded, series
from tests.real.listening import Exposing
from tests.real.waiting import eventually
from tests.runs.scrape import Scrape

PAGE = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3'
ELSEWHERE = "8.8.8.8:9000"
"""In no allowed network."""


def served() -> Iterator[str]:
    """What Prometheus is given to scrape, after each source in turn."""
    with TemporaryDirectory(prefix="stepwatch-parity-") as scratch, ExitStack() as running:
        servers = [running.enter_context(Exposing(lambda _: PAGE)) for _ in range(3)]
        engine, node, trainer = (server.url.removeprefix("http://") for server in servers)
        names = {engine: "ENGINE", node: "NODE", trainer: "TRAINER"}
        folder = Path(scratch)
        (folder / "runs").mkdir()
        session = folder / "ray" / "session_1"
        session.mkdir(parents=True)
        (folder / "ray" / "session_latest").symlink_to(session)
        flags = ("--path", folder / "runs", f"--discovery-ray={folder / 'ray'}", "--poll=0.3")
        with exporting("exporter.runs", *flags) as url:
            yield f"nothing yet: {_read(url)}"
            _verl(session / "metrics" / "prometheus" / "prometheus.yml", [engine, ELSEWHERE])
            yield f"verl's file: {_list(url, names, engine)}"
            listed = [{"labels": {"job": "ray"}, "targets": [node]}]
            (folder / "ray" / "prom_metrics_service_discovery.json").write_text(json.dumps(listed))
            yield f"Ray's list: {_list(url, names, node)}"
            body = {"job_name": "mine", "targets": [trainer], "labels": {"team": "me"}}
            yield f"a registration: {_registered(url, body)}: {_list(url, names, trainer)}"
            body = {"job_name": "mine", "targets": [ELSEWHERE]}
            yield f"a registration from elsewhere: {_registered(url, body)}"
            page = Scrape(read(f"{url}/metrics").encode())
            yield from sorted(
                f"{series(name, dict(labels))} {rounded(value)}"
                for (name, labels), value in page.samples.items()
                if name.startswith(("stepwatch_discovery_", "stepwatch_reg")) and value and "time" not in name
            )


def _verl(file: Path, servers: list[str]) -> None:
    """What verl writes when its servers are up."""
    rollout = {"job_name": "rollout", "static_configs": [{"targets": servers}]}
    file.parent.mkdir(parents=True, exist_ok=True)
    config = {"global": {"scrape_interval": "10s"}, "scrape_configs": [rollout]}
    file.write_text(yaml.dump(config, default_flow_style=False))


def _list(url: str, names: Mapping[str, str], address: str) -> str:
    """The list once it has this address, with names in place of addresses."""
    eventually(lambda: address in str(_read(url)), pause=0.2, seen=lambda: _read(url))
    text = json.dumps(sorted(_read(url), key=str), sort_keys=True)
    for each, name in names.items():
        text = text.replace(each, name)
    return " ".join(sorted(re.findall(r'{"labels.*?\]}', text)))


def _read(url: str) -> list[dict[str, Any]]:
    """What Prometheus is given, once the exporter has read all sources."""
    groups: list[dict[str, Any]] = []

    def answered() -> bool:
        try:
            groups[:] = json.loads(read(f"{url}/sd/rollout"))
        except OSError:  # 503 until then
            return False
        return True

    eventually(answered, pause=0.2)
    return groups


def _registered(url: str, body: dict[str, Any]) -> int:
    """The status of the answer."""
    request = Request(
        f"{url}/api/v1/prometheus/targets", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urlopen(request, timeout=10) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        with error:
            return error.code

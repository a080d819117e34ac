"""A client that registers another one's server does not take it away from its run."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.runs import cli
from exporter.runs.app import App
from exporter.runs.overview.panels import DEFAULT
from stepwatch.system import http_client
from tests.real.server import free_port
from tests.real.waiting import eventually
from tests.runs.speaking import Speaking, says

ENGINE = says(b"vllm:num_requests_waiting 0\n", Content_Type="text/plain; version=0.0.4")


@contextmanager
def serving(*words: str) -> Iterator[str]:
    """The whole exporter; gives its address."""
    port = free_port()
    service = App(cli.command_line([*words, f"--port={port}"]).options(), DEFAULT, lambda: False)
    service.start()
    while service.look() == 0:
        pass
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        service.stop()


def labels_of(url: str, address: str) -> dict[str, str]:
    # nothing but 503 until logs are read
    groups = json.loads(http_client.read(f"{url}/sd/rollout") or "[]")
    found: dict[str, str] = next((each["labels"] for each in groups if address in each["targets"]), {})
    return found


@pytest.mark.slow
def test_what_verl_writes_counts_more_than_who_registers_the_same_address(tmp_path: Path) -> None:
    written = tmp_path / "prometheus.yml"
    with Speaking(ENGINE) as engine:
        address = engine.url.removeprefix("http://")
        job = {"job_name": "rollout", "static_configs": [{"targets": [address]}]}
        written.write_text(json.dumps({"scrape_configs": [job]}) + "\n")
        flags_ = (f"--path={tmp_path / 'runs'}", f"--discovery-files={json.dumps([str(written)])}")
        with serving(*flags_) as url:
            eventually(lambda: labels_of(url, address).get("role") == "rollout")
            body = json.dumps({"job_name": "mine", "targets": [{"target": address}]}).encode()
            asked = urllib.request.Request(
                f"{url}/api/v1/prometheus/targets", body, {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(asked, timeout=10).close()
            eventually(lambda: labels_of(url, address).get("rl_insight_job") == "mine")
            assert labels_of(url, address)["role"] == "rollout"
            assert labels_of(url, address)["job"] == "rollout"

"""What verl does to a machine while it trains: it prints its servers, and rewrites a prometheus.yml."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

import yaml
from typing_extensions import Self

from tests.real.listening import Listening
from tests.runs.lines import append, console, measured

PAGE = """# HELP vllm:num_requests_running Requests in execution.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1000
"""


class Engine(Listening):
    """A rollout server with the metrics page of vLLM, or one that shows it once, then sends ``elsewhere``."""

    def __init__(self, elsewhere: str = "") -> None:
        self._page = type("Page", (_Page,), {"elsewhere": elsewhere})
        super().__init__(self._page)
        self.address = self.url.removeprefix("http://")

    @property
    def asked(self) -> int:
        """How often it was asked for a page."""
        return self._page.asked


class _Page(BaseHTTPRequestHandler):
    elsewhere = ""
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.elsewhere and self.asked > 1:
            self._answer(302, "")
        elif self.path == "/metrics":
            self._answer(200, PAGE)
        else:
            self._answer(404, "")

    def _answer(self, status: int, page: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Location", self.elsewhere)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Say nothing."""


class Trainer:
    """A run that prints its servers and then a step twice a second, until the ``with`` block ends."""

    def __init__(self, log: Path, servers: Sequence[str], reward: float) -> None:
        self._log, self._servers, self._reward = log, servers, reward
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        append(self._log, f"(TaskRunner pid=7) LLMServerManager: {list(self._servers)}\n")
        step = 0
        while not self._stop.wait(0.5):
            step += 1
            append(
                self._log,
                console(step, measured(step, reward=self._reward + step / 100), "(TaskRunner pid=7) "),
            )

    def finish(self) -> None:
        """Say that it is done, and end."""
        self._end()
        append(self._log, "(TaskRunner pid=7) Final validation metrics: {}\n")

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def update_prometheus_config(file: Path, servers: Sequence[str], prometheus: str) -> None:
    """What verl does when its servers are up: its own file in place of what is there, and a reload.

    As in log-formats: two jobs, the whole file opened for writing, and whatever the reload says is ignored.
    """
    ray = {
        "job_name": "ray",
        "file_sd_configs": [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}],
    }
    rollout = {"job_name": "rollout", "static_configs": [{"targets": list(servers)}]}
    config = {
        "global": {"scrape_interval": "10s", "evaluation_interval": "10s"},
        "scrape_configs": [ray, rollout],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as written:
        yaml.dump(config, written, default_flow_style=False, indent=2)
    subprocess.run(
        ["curl", "-X", "POST", f"{prometheus}/-/reload"], capture_output=True, check=False, timeout=10
    )

"""What verl does to a machine while it trains: it prints its servers, and rewrites a prometheus.yml."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread

import yaml

from tests.runs.lines import append, console, measured
from tests.runs.speaking import Speaking, says

PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 3\n'


class Engine(Speaking):
    """A rollout server with the metrics page of vLLM, or one that shows it once, then sends ``elsewhere``."""

    def __init__(self, elsewhere: str = "") -> None:
        def speak(handler: BaseHTTPRequestHandler) -> None:
            if elsewhere and len(self.asked) > 1:
                says(b"", 302, Location=elsewhere)(handler)
            else:
                says(PAGE, Content_Type="text/plain; version=0.0.4")(handler)

        super().__init__(speak)
        self.address = self.url.removeprefix("http://")


@contextmanager
def training(log: Path, servers: Sequence[str], reward: float) -> Iterator[Event]:
    """A run that prints its servers and then a step twice a second, until the event is set, or killed."""
    finished, killed, own = Event(), Event(), "(TaskRunner pid=7) "

    def run() -> None:
        append(log, f"{own}LLMServerManager: {list(servers)}\n")
        step = 0
        while not (finished.is_set() or killed.wait(0.5)):
            step += 1
            append(log, console(step, measured(step, reward=reward + step / 100), own))
        if finished.is_set():
            append(log, f"{own}Final validation metrics: {{}}\n")

    thread = Thread(target=run)
    thread.start()
    try:
        yield finished
    finally:
        killed.set()
        thread.join()


def update_prometheus_config(file: Path, servers: Sequence[str], prometheus: str) -> None:
    """What verl does when its servers are up: its own file in place of what is there, and a reload.

    Two jobs, the whole file opened for writing, and whatever the reload says is ignored.
    """
    ray = {
        "job_name": "ray",
        "file_sd_configs": [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}],
    }
    rollout = {"job_name": "rollout", "static_configs": [{"targets": list(servers)}]}
    config = {"global": {"scrape_interval": "10s"}, "scrape_configs": [ray, rollout]}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as written:
        yaml.dump(config, written, default_flow_style=False, indent=2)
    reload = ["curl", "-X", "POST", f"{prometheus}/-/reload"]
    subprocess.run(reload, capture_output=True, check=False, timeout=10)

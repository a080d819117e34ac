"""What the exporter serves: started for the check, asked as Prometheus asks it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from stepwatch.system import http_client, ports
from tools.gpu_check.rows import Row

READY_SECONDS = 60.0
PROCESSES = 1000
"""All are named: which of them has which number is part of the check."""


class Page:
    """One page."""

    def __init__(self, text: str) -> None:
        self.samples: list[Sample] = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def value(self, uuid: str, row: Row) -> float | None:
        """What it says of a GPU."""
        wanted = {"uuid": uuid, **row.labels}.items()
        for sample in self.samples:
            if sample.name == row.metric and wanted <= sample.labels.items():
                return float(sample.value)
        return None

    def values(self, metric: str, label: str) -> set[str]:
        """All that a label of this metric holds."""
        return {sample.labels[label] for sample in self.samples if sample.name == metric}


@contextmanager
def exporter() -> Iterator[str]:
    """Its address while it runs, once it has read the GPUs twice."""
    port = ports.free("127.0.0.1")
    flags = [f"--port={port}", f"--processes={PROCESSES}", "--log.level=warn"]
    with subprocess.Popen(
        [sys.executable, "-m", "exporter.gpu", *flags], stdout=subprocess.DEVNULL
    ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            yield f"{url}/metrics"
        finally:
            process.terminate()


def _wait(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while http_client.read(f"{url}/-/ready") is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)  # what is a mean needs two readings


def page(url: str) -> Page:
    """Read it now."""
    return Page(http_client.read(url) or "")

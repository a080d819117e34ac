"""Samples in blocks of Prometheus: pages of exporters as if they had been scraped for some time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real import PrometheusServer, prometheus

Sample = tuple[str, float]
"""A series, with all its labels, and its value."""


def scraped(page: str, job: str, instance: str, **more: str) -> Iterator[Sample]:
    """Yield what Prometheus keeps of a page; `more` are labels of the target."""
    target = ",".join(f'{key}="{text}"' for key, text in {"job": job, "instance": instance, **more}.items())
    lines = [line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#")]
    for series, _, value in lines:
        name, _, labels = series.partition("{")
        inside = ",".join(filter(None, (labels.removesuffix("}").rstrip(","), target)))
        yield f"{name}{{{inside}}}", float(value)
    yield f"up{{{target}}}", 1
    yield f"scrape_duration_seconds{{{target}}}", 0.01
    yield f"scrape_samples_scraped{{{target}}}", len(lines)


def store(folder: Path, text: Iterable[str]) -> None:
    """Make blocks of lines of OpenMetrics, to those that the folder has."""
    path = folder / "samples"
    with path.open("w") as out:
        out.writelines(text)
        out.write("# EOF\n")
    tool = prometheus("3.13").tool
    blocks = (tool, "tsdb", "create-blocks-from", "--max-block-duration=24h", "openmetrics", "--quiet")
    done = subprocess.run((*blocks, path, folder / "data"), capture_output=True, text=True, check=False)
    path.unlink()
    if done.returncode:
        raise RuntimeError(f"promtool makes no blocks of the samples: {done.stderr[-800:]}")


@contextmanager
def serving(version: str, folder: Path) -> Iterator[PrometheusServer]:
    """A Prometheus of this version that answers from the blocks; those of the folder stay as they are."""
    (folder / "prometheus.yml").write_text("global: {}\n")
    server = PrometheusServer(version, folder, options=("--storage.tsdb.retention.time=100y",))
    shutil.copytree(folder / "data", server.folder / "data", copy_function=os.link)
    with server:
        yield server

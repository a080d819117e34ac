"""The pages of the GPU exporter: of the demo, as tests/gpu keeps them, and of a driver of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.gpu.driver import Driver
from tests.parity.product import exporting, read, rounded, series
from tests.real.waiting import Work, eventually
from tests.runs.scrape import Scrape

PROFILES = ("h200", "a100", "a100-mig", "rtx4080")
CARDS = ("h200", "a100", "rtx4080")
MOVING = re.compile("process_|gpu_exporter_|stepwatch_")
EQUAL_SCRAPES, MOST_SCRAPES = 10, 150
"""Scrapes that show the same metrics, after which windows and rates are there; and at which to give up."""


def demo() -> Iterator[str]:
    """Metrics of the simulated GPUs: type, names of labels, number of series; values move."""
    for profile in PROFILES:
        with exporting("exporter.gpu", "--backend=demo", f"--profile={profile}") as url:
            yield from _names(profile, _up(url))


def driver() -> Iterator[str]:
    """Each value of GPU 3, as a driver with known values tells them."""
    for card in CARDS:
        with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
            fake = Driver(Path(folder))
            fake.install()
            fake.tell("gpus=8", f"profile={card}")
            with exporting("exporter.gpu", "--interval=0.2", **fake.environment) as url:
                found = _up(url)
            fake.release()
        lines = []
        for (name, labels), value in found.samples.items():
            about = dict(labels)
            if about.pop("gpu", "3") == "3" and name.startswith("gpu_") and not MOVING.match(name):
                about.pop("uuid", None)
                lines.append(f"{card}: {series(name, about)} {rounded(value)}")
        yield from sorted(lines)


def _up(url) -> Scrape:  # type: ignore[no-untyped-def]
    """The page with all GPUs, once it has what takes two readings."""
    pages: list[set[str]] = []

    def full() -> bool:
        page = Scrape(read(f"{url}/metrics").encode())
        pages.append({name for name, _ in page.samples})
        return bool(page.all("gpu_up")) and pages[-EQUAL_SCRAPES:] == [pages[-1]] * EQUAL_SCRAPES

    scrapes = Work("scrapes", lambda: len(pages))
    eventually(full, scrapes, MOST_SCRAPES, pause=0.2, seen=lambda: pages[-1:])
    return Scrape(read(f"{url}/metrics").encode())


def _names(profile: str, found: Scrape) -> Iterator[str]:
    named: dict[str, list[frozenset[str]]] = {}
    for name, labels in found.samples:
        if name.startswith("gpu_"):
            named.setdefault(name, []).append(frozenset(key for key, _ in labels))
    for name, each in sorted(named.items()):
        labels = sorted(frozenset().union(*each))
        yield f"{profile}: {name} {{{','.join(labels)}}} {len(each)} series"

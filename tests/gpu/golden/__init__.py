"""Whole pages of the GPU exporter, kept to the byte: what a release changes of them is to be seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Condition

from exporter.gpu.backend import OK, PROFILES, Backend, Extras
from exporter.gpu.demo import Demo
from exporter.gpu.state import State
from exporter.gpu.worker import Reader, message

FOLDER = Path(__file__).parent
SEED = 7
WORKED_SECONDS = 136.0
"""The policy is being updated then."""
INTERVAL = 1.0
MOVING = re.compile(
    r"(process_|gpu_exporter_(collect_duration|driver_latency)_seconds|gpu_exporter_build_info)\w*"
)
"""Metrics whose values hang on the machine, the moment, or the release."""


def pages() -> dict[str, str]:
    """Each golden page as it is now, by its name."""
    found = {profile: _demo(Extras(profile=profile)) for profile in PROFILES}
    found["h200-sick"] = _demo(Extras(profile="h200", sick=5))
    found["h200-all"] = _demo(Extras(processes=4, serial=True, links=True))
    return found


def path(name: str) -> Path:
    """Where a golden page is kept."""
    return FOLDER / f"{name}.metrics"


def steady(page: str) -> str:
    """What is left of a page without what moves by itself."""
    lines = page.splitlines(keepends=True)
    return "".join(line for line in lines if not MOVING.fullmatch(_metric(line)))


def _metric(line: str) -> str:
    """The metric that a line is about."""
    return re.split(r"[{ ]", line.removeprefix("# HELP ").removeprefix("# TYPE "))[0]


def _demo(extras: Extras) -> str:
    at = 0.0
    demo = Demo(extras, SEED, lambda: at, lambda _: None)
    demo.open()
    at = WORKED_SECONDS
    return steady(_page(demo))


def _page(backend: Backend) -> str:
    """The page after two readings: a rate needs two."""
    readers = [Reader(card, INTERVAL, Condition()) for card in backend.cards()]
    state = State(INTERVAL)
    for now in (0.0, INTERVAL):
        for reader in readers:
            reader.read(now)
        reports = [(reader.card, reader.report) for reader in readers]
        reported = json.loads(message(OK, backend.system(), reports, backend.events(0)))
        state.update(reported, now, 1e9)
        state.count((uuid, xid, 1e9) for uuid, xid, _ in reported["events"])
    return state.page(INTERVAL).decode()

"""Whole pages of the GPU exporter, kept to the byte: what a release changes of them is to be seen."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.gpu.backend import PROFILES, Event, Settings
from exporter.gpu.demo import Demo
from tests.gpu.box import Box

FOLDER = Path(__file__).parent
WORKED_SECONDS = 136.0
"""The policy is being updated then."""
INTERVAL = 1.0
MOVING = re.compile(
    r"(process_|gpu_exporter_(collect_duration|driver_latency)_seconds|gpu_exporter_build_info"
    r"|gpu_exporter_config_last_reload_success_)\w*"
)
"""Metrics whose values hang on the machine, the moment, or the release."""


def pages() -> dict[str, str]:
    """Each golden page as it is now, by its name."""
    found = {profile: _demo(Settings(profile=profile)) for profile in PROFILES}
    found["h200-sick"] = _demo(Settings(profile="h200", sick=5))
    found["h200-all"] = _demo(Settings(processes=4, serial=True, links=True))
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


class _Timeless(Demo):
    """Its errors came at one time."""

    def events(self, seconds: float) -> list[Event]:
        return [event._replace(at=1e9) for event in super().events(seconds)]


def _demo(extras: Settings) -> str:
    """The page after two readings: a rate needs two."""
    at = 0.0
    box = Box(_Timeless(extras, lambda: at), INTERVAL)
    at = WORKED_SECONDS
    box.page(0.0, 1e9)
    return steady(box.page(INTERVAL, 1e9))

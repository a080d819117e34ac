"""Tables on a screen of 1024 pixels: every column is in view, and no text of a row is cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exporter.gpu.table import CLOCK_EVENTS
from tests.grafana.conftest import Json
from tests.grafana.drawn import drawing
from tests.grafana.queries import View
from tests.grafana.stored import serving, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

START, EVERY, POINTS = 1_795_000_000, 15, 30
NARROW = 1024
BOX = "node-1:9411"
REASONS = [name for name in CLOCK_EVENTS if name not in {"idle", "power_cap"}]

CUT = """
    const panel = document.querySelector('section[title="Side by side"]');
    const padding = 8, edge = panel.getBoundingClientRect().right - padding;
    return [...panel.querySelectorAll('[role=columnheader], [role=cell], [role=gridcell]')].filter((cell) => {
        const own = cell.getBoundingClientRect(), range = document.createRange();
        range.selectNodeContents(cell.querySelector(':not(:has(*))') ?? cell);
        const text = range.getBoundingClientRect();
        return text.left < own.left || text.right > Math.min(own.right, edge);
    }).map((cell) => cell.textContent);"""
"""The cells whose text does not fit, or is out of view."""


def samples() -> Iterator[str]:
    for gpu, reason in enumerate(REASONS):
        values = {
            "gpu_up": 1.0,
            "gpu_utilization_ratio": 1.0,
            'gpu_clock_hertz{domain="sm"}': 1.98e9,
            f'gpu_clock_event_active{{reason="{reason}"}}': 1.0,
            "gpu_power_watts": 1000.0,
            'gpu_temperature_celsius{sensor="gpu"}': 100.0,
            "gpu_memory_used_bytes": 1e11,
            "gpu_memory_total_bytes": 1e11,
            "gpu_recovery_action": 1.0,
            'ALERTS{alertname="GPURecoveryNeeded",alertstate="firing",severity="critical"}': 1.0,
        }
        for name, value in values.items():
            metric, _, labels = name.partition("{")
            inside = ",".join(filter(None, (labels.removesuffix("}"), f'gpu="{gpu}"', f'instance="{BOX}"')))
            for point in range(POINTS):
                yield f"{metric}{{{inside}}} {value} {START + EVERY * point}\n"


def test_the_table_of_gpus_is_read_whole(
    default: dict[str, Json], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("narrow")
    store(folder, samples())
    view = View(START, START + EVERY * (POINTS - 1), {"instance": BOX}, interval=EVERY)
    with serving("3.13", folder) as server, drawing() as pen:
        shown = pen.show(default["stepwatch-gpu"], server.url, view, width=NARROW)["Side by side"]
        cut = pen.browser.driver.execute_script(CUT)

    assert [row["reason"]["text"] for row in shown] == REASONS
    assert {row["state"]["text"] for row in shown} == {"needs reset"}
    assert cut == []

"""What a person reads on tables and sparklines of a box, a machine and two runs, from stored samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwatch.alerts.model.runs import SHOWN_STATE, SHOWN_STATES
from tests.grafana.conftest import Json
from tests.grafana.drawn import Drawing, drawing
from tests.grafana.queries import View
from tests.grafana.scraped import machine
from tests.grafana.stored import scraped, serving, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DAY, START, EVERY = 24 * 3600, 1_700_006_400, 15
BEGAN, END = START + DAY - 20 * 60, START + DAY
"""Of the runs: the last 20 minutes of a day."""
BOX, MACHINE = "box-1:9411", "node-1:9100"
SHORT, ENDLESS = "ppo/short", "ppo/endless"
"""A run that says how many steps it will take, and one that does not."""
ALL = dict.fromkeys(("folder", "framework", "state", "machine"), ".*")
SLOWED = {"2": "software_thermal", "5": "power_brake"}
"""Reasons by GPU."""
NEEDS_RESET, REMAP_FAILED, UNCORRECTED, NVLINK = "6", "4", "3", "1"


def runs() -> Iterator[str]:
    for run in (SHORT, ENDLESS):
        yield f'rl_run_info{{run="{run}",framework="verl",source="console"}} 1'
        yield f'rl_run_state{{run="{run}",state="running"}} 1'
        yield f'{SHOWN_STATE}{{run="{run}"}} {SHOWN_STATES.index("running") + 1}'
        yield f'rl_step{{run="{run}"}} 25'
        yield f'rl_run_start_timestamp_seconds{{run="{run}"}} {BEGAN}'
        yield f'rl_last_step_timestamp_seconds{{run="{run}"}} {END}'
    yield f'rl_total_steps{{run="{SHORT}"}} 100'


def gpus(seconds: int) -> Iterator[str]:
    for gpu in map(str, range(8)):
        each = f'gpu="{gpu}",uuid="GPU-{gpu}"'
        yield f"gpu_up{{{each}}} 1"
        yield f'gpu_ecc_errors_total{{{each},type="uncorrected"}} {2 * (gpu == UNCORRECTED)}'
        yield f'gpu_nvlink_errors_total{{{each},type="recovery",link="0"}} {int(gpu == NVLINK)}'
        yield f'gpu_remapped_rows_total{{{each},cause="corrected"}} 0'
        yield f"gpu_row_remap_pending{{{each}}} 0"
        yield f"gpu_row_remap_failed{{{each}}} {int(gpu == REMAP_FAILED)}"
        yield f"gpu_recovery_action{{{each}}} {int(gpu == NEEDS_RESET)}"
        yield f'gpu_clock_hertz{{{each},domain="sm"}} 1.5e9'
        for reason in ("software_thermal", "power_brake"):
            slowed = seconds / 2 * (SLOWED.get(gpu) == reason)
            yield f'gpu_clock_event_seconds_total{{{each},reason="{reason}"}} {slowed}'


def samples() -> Iterator[str]:
    for at in range(BEGAN, END + 1, EVERY):
        pages = {
            ("runs", "a:9410"): runs(),
            ("gpu", BOX): gpus(at - BEGAN),
            ("node", MACHINE): (line for line in machine() if "infiniband" not in line),
        }
        for (job, instance), page in pages.items():
            for series, value in scraped("\n".join(page), job, instance):
                yield f"{series} {value} {at}\n"
        for run in (SHORT, ENDLESS):
            yield f'rl_reward{{run="{run}"}} {math.sin((at - BEGAN) / 60)} {at}\n'


@pytest.fixture(name="url", scope="module")
def _url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("stored")
    store(folder, samples())
    with serving("3.13", folder) as server:
        yield server.url


@pytest.fixture(name="pen", scope="module")
def _pen() -> Iterator[Drawing]:
    with drawing() as found:
        yield found


def read(pen: Drawing, dashboard: Json, url: str, seconds: int = 3600, width: int = 1600) -> dict[str, Any]:
    return pen.show(dashboard, url, View(END - seconds, END, {**ALL, "instance": BOX}), width=width)


def test_the_health_of_the_worst_card_stands_first(default: dict[str, Json], url: str, pen: Drawing) -> None:
    found = read(pen, default["stepwatch-gpu"], url)

    first = [row["gpu"]["text"] for row in found["Health"]][:4]
    assert first == [REMAP_FAILED, NEEDS_RESET, UNCORRECTED, NVLINK]


def test_a_file_system_says_yes_or_no(default: dict[str, Json], url: str, pen: Drawing) -> None:
    found = read(pen, default["stepwatch-nodes"], url)
    rows = {row["mountpoint"]["text"]: row for row in found["File systems"]}

    assert (rows["/"]["writable"]["text"], rows["/"]["readable"]["text"]) == ("yes", "yes")
    assert (rows["/nas"]["readable"]["text"], rows["/nas"]["readable"]["color"]) == ("no", "#FF9830")


def test_a_machine_without_infiniband_is_not_said_to_be_down(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    assert read(pen, default["stepwatch-nodes"], url)["InfiniBand"] == []

    text = pen.browser.tell("document.querySelector('section[title=InfiniBand]').innerText")
    assert text.split("\n")[1:] == ["no InfiniBand or RoCE port reported"]


def test_progress_without_a_known_end_is_not_one_of_0(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    found = read(pen, default["stepwatch-runs"], url)
    rows = {row["run"]["text"]: row["progress"]["text"] for row in found["All runs"]}

    assert rows == {SHORT: "25%", ENDLESS: "-"}


def test_a_sparkline_lies_where_its_run_was_in_the_time_on_show(
    default: dict[str, Json], url: str, pen: Drawing
) -> None:
    for seconds, share in ((20 * 60, 1), (2 * 3600, 1 / 6)):
        read(pen, default["stepwatch-runs"], url, seconds)
        for drawn in sparklines(pen):
            assert drawn == pytest.approx(share, abs=0.04)


def sparklines(pen: Drawing) -> list[float]:
    """Return which share of its width each curve takes."""
    found: list[float] = pen.browser.tell("""
        [...document.querySelectorAll('section[title="Rewards"] canvas')].map((canvas) => {
            const {data, width} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const columns = new Set();
            for (let at = 3; at < data.length; at += 4) {
                if (data[at] > 0) columns.add(((at - 3) / 4) % width);
            }
            return (Math.max(...columns) - Math.min(...columns)) / width;
        })""")
    assert len(found) == 2
    return found

"""SkyRL's console, as its ``ConsoleLogger`` writes it through loguru: the writer here follows its source."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Ended, Event, Record, TotalSteps, number
from exporter.runs.sources import recognise, recognise_first
from exporter.runs.sources.dict_consoles import SkyRl
from tests.runs.conftest import Watching
from tests.runs.lines import append, bare

NAME = "skyrl.train.utils.tracking:log:201"
WHERE = ":".join(f"\x1b[36m{part}\x1b[0m" for part in NAME.split(":"))
COLOURED = (
    f"\x1b[32m2026-10-02 10:11:12.345\x1b[0m | \x1b[1mINFO    \x1b[0m | {WHERE} - \x1b[1m\x1b[32m{{}}\x1b[0m"
)
PLAIN = f"2026-10-02 10:11:12.345 | INFO     | {NAME} - {{}}"
RAY = "\x1b[36m(skyrl_entrypoint pid=4711)\x1b[0m "


def logged(step: int, values: Mapping[str, Any], form: str = PLAIN, before: str = "") -> list[str]:
    """The lines of one step; floats have four decimals."""
    shown = {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in values.items()}
    text = form.format(f"Step {step}: \n{pprint.pformat(shown)}")
    return [before + line for line in text.split("\n")]


def measured(step: int) -> dict[str, Any]:
    return {
        "reward/avg_raw_reward": 0.25 + step / 16,
        "reward/avg_pass_at_4": 0.5,
        "policy/policy_kl": 0.0125,
        "policy/policy_entropy": 0.5,
        "policy/raw_grad_norm": 1.5,
        "generate/avg_num_tokens": 312.5,
        "trainer/epoch": 0,
        "trainer/global_step": step,
        "timing/step": 41.25,
    }


def read(*lines: str) -> list[Event]:
    source = SkyRl()
    return [event for line in bare(*lines) for event in source.parse(line)]


@pytest.mark.parametrize("form", [PLAIN, COLOURED])
@pytest.mark.parametrize("before", ["", RAY])
def test_a_step_is_read_from_the_dict_below_it_with_colours_and_behind_ray(form: str, before: str) -> None:
    (record,) = read(*logged(12, measured(12), form, before))

    assert isinstance(record, Record)
    assert record.step == 12
    assert {key: number(value) for key, value in record.values.items()} == measured(12)


def test_a_log_is_known_by_the_line_above_a_dict() -> None:
    (head, *rest) = logged(1, measured(1), COLOURED, RAY)
    source = recognise(head.encode())

    assert source.name == "skyrl_console"
    assert not any(SkyRl.recognises(line.encode()) for line in [*rest, "Step 3:", "tracking: Step 3"])


def test_the_bar_reports_the_total_once_and_the_last_line_the_end() -> None:
    bars = [f"Training Batches Processed:  {n}%|# | {n}/200 [00:0{n}<10:00,  1.00s/it]" for n in (1, 2)]

    assert read(*bars) == [TotalSteps(200)]
    assert read(PLAIN.format("Training done!")) == [Ended("finished")]


def test_dicts_of_others_and_status_lines_are_no_steps() -> None:
    status = PLAIN.format("{'policy_loss': 0.1, 'policy_kl': 0.2}")

    assert read(status, "{'a': 1}", logged(3, {})[0], "no dict", "{'reward/avg_raw_reward': '0.5'}") == []


@pytest.mark.slow
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,12}/[a-z_@0-9]{1,30}", fullmatch=True),
        st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(10**9), 10**9),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 10**9),
)
def test_all_numbers_of_any_step_are_read_as_they_were_printed(values: dict[str, Any], step: int) -> None:
    (record,) = read(*logged(step, values, COLOURED, RAY))

    assert isinstance(record, Record)
    assert record.step == step
    printed = {key: float(f"{value:.4f}") for key, value in values.items()}
    assert {key: number(value) for key, value in record.values.items()} == printed


@given(st.lists(st.text(max_size=80), max_size=8))
def test_any_text_between_steps_changes_no_step(texts: list[str]) -> None:
    lines = [line for text in texts for line in text.split("\n") if "Step" not in line and "{" not in line]
    found = read(*logged(1, measured(1)), *lines, *logged(2, measured(2)))

    assert [event.step for event in found if isinstance(event, Record)] == [1, 2]


def test_a_growing_log_is_on_the_page_with_its_signals(folder: Path, watched: Watching) -> None:
    page, log = watched(), folder / "sky/train.log"
    log.parent.mkdir()
    for step in range(1, 7):
        append(log, *(f"{line}\n" for line in logged(step, measured(step), COLOURED, RAY)))
        found = page.discover()

    assert found.value("rl_step", run="sky") == 6
    assert found.value("rl_reward", run="sky") == pytest.approx(0.625)
    assert found.value("rl_entropy", run="sky") == 0.5
    assert found.value("rl_response_length", run="sky") == 312.5
    assert found.state("sky") == "running"


def test_a_head_whose_dict_has_not_come_yet_is_a_log_already() -> None:
    assert recognise_first([b"INFO starting", logged(1, {})[0].encode()]) is not None

"""Real logs of verl, from their bytes to the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs.conftest import Watched
from tests.runs.verl_pages import live, one_more_step, state_at_the_end, stddevs_below_best

Watching = Callable[..., Watched]


@pytest.fixture(name="logs")
def _logs(real_logs: Path) -> Callable[[str], bytes]:
    """The content of the only real console log whose name starts like that."""

    def content(start: str) -> bytes:
        (found,) = (real_logs / "verl_console").glob(f"{start}*.log")
        return found.read_bytes()

    return content


@given(cuts=st.lists(st.integers(0, 190_000), max_size=20))
@settings(max_examples=8)
def test_a_log_read_in_pieces_is_the_log_read_at_once(
    logs: Callable[[str], bytes], folder: Path, watched: Watching, cuts: list[int]
) -> None:
    content, log = logs("opd_f6sves9c"), folder / "a.log"
    log.write_bytes(content)
    at_once = live(watched(), log, 100).look(60.0)
    log.write_bytes(b"")
    page = watched()
    page.look()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
        with log.open("ab") as file:
            file.write(content[start:end])
        page.look(3.0)

    assert live(page, log, 100).look(60.0).about_run("a") == at_once.about_run("a")


def test_a_resumed_run_in_one_log_is_one_run_with_one_resume(
    logs: Callable[[str], bytes], folder: Path, watched: Watching
) -> None:
    (folder / "a.log").write_bytes(logs("searchr1_grpo_part1") + b"\n" + logs("searchr1_grpo_part2"))
    page = watched().look()

    assert page.state("a") == "finished"
    assert page.value("rl_resumes_total", run="a") == 1
    assert (page.value("rl_step", run="a"), page.value("rl_steps_seen", run="a")) == (300, 301)
    assert page.value("rl_records_total", run="a") == 301


def test_validation_steps_ten_times_as_long_do_not_make_a_run_silent(
    logs: Callable[[str], bytes], folder: Path, watched: Watching
) -> None:
    (folder / "a.log").write_bytes(logs("searchr1_grpo_part2").partition(b"step:250 - ")[0])
    page = watched().look()
    typical = page.value("rl_step_interval_typical_seconds", run="a") or 0.0

    assert 80 < typical < 400
    assert 5 * typical > 974


@pytest.mark.parametrize("name", ["verl_sft_dq9a4cex", "verl_sft_gsm8k"])
def test_a_run_without_rewards_has_no_reward(
    logs: Callable[[str], bytes], folder: Path, watched: Watching, name: str
) -> None:
    (folder / "a.log").write_bytes(logs(name))
    page = watched().look()

    assert (page.value("rl_step", run="a") or 0) > 50
    assert page.value("rl_reward", run="a") is None
    assert not [key for key in page.samples if ("signal", "reward") in key[1]]


def test_a_field_that_was_cut_off_is_a_gap_and_no_zero(
    logs: Callable[[str], bytes], folder: Path, watched: Watching
) -> None:
    log = folder / "a.log"
    log.write_bytes(logs("opd_ry3hgbx5"))
    page = live(watched(), log, 180).scrape()

    assert page.value("rl_records_total", run="a") == 181
    assert (page.value("rl_min_over_steps", run="a", signal="response_length") or 0) > 200
    assert page.all("rl_nonfinite_steps_total", run="a") == {}


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("searchr1_grpo_part1", "failed"),
        ("searchr1_grpo_part2", "finished"),
        ("verl_ppo_gsm8k_qwen2.5", "finished"),
        ("verl_ppo_gsm8k_resumed", "finished"),
        ("verl_sft_dq9a4cex", "finished"),
        ("econ_grpo_54steps", "stopped"),
        ("opd_gjvwlq13", "stopped"),
    ],
)
def test_each_log_ends_as_it_says(
    logs: Callable[[str], bytes], folder: Path, watched: Watching, name: str, state: str
) -> None:
    assert state_at_the_end(watched(), folder / "a.log", logs(name)) == state


def test_the_reward_collapse_shows_in_the_statistics_and_the_healthy_run_shows_none(
    logs: Callable[[str], bytes], folder: Path, watched: Watching
) -> None:
    contents = {"sick": logs("opd_gjvwlq13"), "healthy": logs("opd_ry3hgbx5")}
    before = {name: content.partition(b"step:50 - ")[0] for name, content in contents.items()}
    found = one_more_step(watched(), folder, before, 50)

    assert stddevs_below_best(found, "sick") > 4
    assert stddevs_below_best(found, "healthy") < 2.5

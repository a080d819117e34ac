"""The pages as a whole: as they were last looked at, without a fault that a tool would find, and small."""

from __future__ import annotations

import math
import subprocess

import pytest

from exporter.gpu.backend import PROFILES
from tests.gpu import golden
from tests.real import prometheus
from tests.runs.scrape import Scrape

PAGES = golden.pages()
MOST = {"h200": 105, "a100": 95, "a100-mig": 100, "rtx4080": 80}
"""Series of one card, 14 of them its state and its Xid errors; 20 more are about the box."""
FIX = "If this is what it shall be: `python -m tests.gpu.golden`, and look at the difference."


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_was_kept(name: str) -> None:
    assert PAGES[name] == golden.path(name).read_text(), FIX


def test_no_page_is_kept_that_no_one_compares() -> None:
    assert {page.stem for page in golden.FOLDER.glob("*.metrics")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_promtool_finds_nothing_wrong(name: str, version: str) -> None:
    done = subprocess.run(
        [prometheus(version).tool, "check", "metrics"],
        input=PAGES[name],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", PAGES)
def test_every_value_is_a_number_and_every_series_is_there_once(name: str) -> None:
    assert all(math.isfinite(value) for value in Scrape(PAGES[name].encode()).samples.values())


@pytest.mark.parametrize("profile", PROFILES)
def test_only_what_hangs_on_machine_and_moment_is_left_out(profile: str) -> None:
    shown = {name for name, _ in Scrape(PAGES[profile].encode()).samples}

    assert not [name for name in shown if golden.MOVING.fullmatch(name)]
    assert {"gpu_up", "gpu_info", "gpu_exporter_nvml_up", "gpu_xid_errors_total"} <= shown


@pytest.mark.parametrize("profile", MOST)
def test_a_card_has_no_more_series_than_it_needs(profile: str) -> None:
    samples = Scrape(PAGES[profile].encode()).samples
    of_one = [labels for _, labels in samples if ("gpu", "0") in labels]

    assert len(of_one) <= MOST[profile]
    assert len(samples) - PROFILES[profile] * len(of_one) <= 20

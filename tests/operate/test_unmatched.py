"""Overrides that fit no run are reported, once the runs are known."""

from __future__ import annotations

import pytest

from stepwatch import __main__ as command
from stepwatch.config import load
from stepwatch.operate.limits_report import unmatched
from stepwatch.services.health_report import read_runs
from tests.operate.conftest import Site
from tests.runs.serve.test_exposition import scrape, view

OFF = {"KL": {"enabled": False}}


def remarks(site: Site, *patterns: str) -> list[str]:
    site.write(overrides=[{"runs": pattern, "alerts": OFF} for pattern in patterns])
    return unmatched(load(site.config))


def test_a_pattern_that_fits_no_run_is_reported_with_the_nearest_names(site: Site) -> None:
    found = remarks(site, "sft-*", "sft_*", "ppo/*")

    assert found == [
        "overrides[1].runs: sft_* matches no known run. Similar names: sft-7, ppo/math, ppo/gsm8k."
    ]


def test_while_logs_are_still_being_read_nothing_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 'rl_run_info{run="a",framework="verl"} 1.0\nstepwatch_unread_bytes 5.0\n'
    monkeypatch.setattr("stepwatch.system.http_client.read", lambda _: page)

    assert remarks(site, "sft_*") == []


def test_status_sets_each_of_them_off_by_an_empty_line(site: Site) -> None:
    site.write(overrides=[{"runs": "sft_*", "alerts": OFF}])

    (remark,) = command._unmatched(site.config)

    assert remark.startswith("\noverrides[0].runs: sft_* matches no known run.")


@pytest.mark.parametrize("name", ["ppo/gsm8k", 'quo"te', "back\\slash", "new\nline", "模型", "{brace}, a=b"])
def test_names_are_read_as_they_are_whatever_is_in_them(name: str) -> None:
    assert read_runs(scrape(view(name, steps=1)).text) == [name]

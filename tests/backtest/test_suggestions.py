"""`backtest --suggest`: limits that would change the outcome, on runs made to cross them at a known value."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from demo import OVERRIDES
from stepwatch.__main__ import main
from stepwatch.backtest.suggestions import limits
from stepwatch.config import load
from tests import real
from tests.backtest.conftest import Backtest, document, log, wavering
from tests.backtest.pages import Page

START = 0.05
KL_HIGH = ("alerts.KL.warning.above_start", "warning")
KL_EXPLOSION = ("alerts.KL.critical.above_start", "critical")


def rising(by: float) -> list[dict[str, float]]:
    """A run whose KL rises so much above its start, so slowly that its noise does not matter."""
    kls = [*[START] * 20, *(START + by * part / 30 for part in range(30)), *[START + by] * 10]
    return [{"reward": reward, "kl": kl} for reward, kl in zip(wavering(0.5, len(kls)), kls, strict=True)]


def broken(steps: int) -> list[dict[str, float]]:
    """A run whose gradient norm is NaN for so many steps."""
    norms = [*[1.0] * 5, *[float("nan")] * steps, 1.0]
    records = zip(wavering(0.5, len(norms)), norms, strict=True)
    return [{"reward": reward, "grad_norm": norm} for reward, norm in records]


def shortened() -> list[dict[str, float]]:
    """A run whose responses fall from 300 tokens to 91, and whose reward stays."""
    lengths = [*[300.0] * 20, *[91.0] * 10]
    records = zip(wavering(0.5, 30), lengths, strict=True)
    return [{"reward": reward, "response_length": length} for reward, length in records]


RUNS = {
    "calm": rising(0.001),
    "mild": rising(0.305),
    "wild": rising(1.55),
    "nan-2": broken(2),
    "nan-5": broken(5),
    "short": shortened(),
}


class Reported(NamedTuple):
    """What was said of the runs in a folder, as text, as JSON and as a page."""

    lines: list[str]
    json: dict[str, Any]
    page: Page

    def of(self, limit: str, severity: str) -> dict[str, Any]:
        """The suggestion for a limit and an alert of this severity."""
        asked = (limit, severity)
        (found,) = [each for each in self.json["suggestions"] if (each["limit"], each["severity"]) == asked]
        return dict(found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, records in RUNS.items():
        log(folder / f"{name}.jsonl", records)
    return folder


@pytest.fixture(scope="module")
def reported(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """What other limits would change."""
    folder, tool = tmp_path_factory.mktemp("report"), real.prometheus("3.13")
    (folder / "config.yaml").write_text("{}\n")
    with pytest.MonkeyPatch.context() as environment, redirect_stdout(StringIO()) as out:
        environment.setenv("STEPWATCH_PROMETHEUS", str(tool.server))
        environment.setenv("STEPWATCH_PROMTOOL", str(tool.tool))
        command = ["backtest", "--config", str(folder / "config.yaml"), str(runs)]
        assert main([*command, "--suggest", "--report", str(folder)]) == 0
    document = json.loads((folder / "backtest.json").read_text())
    return Reported(out.getvalue().splitlines(), document, Page((folder / "index.html").read_text()))


def test_reports_the_nearest_value_that_catches_another_run(reported: Reported) -> None:
    found = reported.of(*KL_HIGH)
    assert (found["alert"], found["now"], found["fires_on"]) == ("KLHigh", 0.5, ["wild"])
    assert found["lower"] == {"value": 0.3, "also": ["mild"], "no_longer": []}


def test_reports_the_nearest_value_that_lets_a_run_go(reported: Reported) -> None:
    found = reported.of(*KL_EXPLOSION)
    assert (found["fires_on"], found["lower"]) == (["wild"], None)
    assert found["higher"] == {"value": 1.6, "also": [], "no_longer": ["wild"]}


def test_a_value_that_the_configuration_refuses_is_not_suggested(reported: Reported) -> None:
    found = reported.of(*KL_HIGH)
    assert (found["lowest"], found["highest"], found["higher"]) == (0.063, 1, None)


def test_counts_are_tried_as_whole_numbers(reported: Reported) -> None:
    found = reported.of("alerts.NonFinite.critical.steps", "critical")
    assert found["fires_on"] == ["nan-5"]
    assert found["lower"] == {"value": 2, "also": ["nan-2"], "no_longer": []}
    assert found["higher"] == {"value": 6, "also": [], "no_longer": ["nan-5"]}


def test_a_limit_of_two_alerts_is_reported_for_each(reported: Reported) -> None:
    limit = "alerts.LengthCollapse.warning.median_ratio"
    assert reported.of(limit, "warning")["higher"] == {"value": 0.31, "also": ["short"], "no_longer": []}
    # the critical one wants a lost reward as well
    assert reported.of(limit, "critical")["higher"] is None


def test_limits_that_no_run_reaches_and_those_of_alerts_left_out(reported: Reported) -> None:
    (line,) = [line for line in reported.lines if line.startswith("No run comes near these")]
    assert "alerts.EntropyCollapse.warning.below" in line
    assert KL_HIGH[0] not in line
    assert not [each for each in reported.json["suggestions"] if "Stalled" in each["limit"]]


def test_the_table_and_the_page_say_it_in_words(reported: Reported) -> None:
    (row,) = [line for line in reported.lines if line.startswith(KL_HIGH[0])]
    assert row.split()[1:4] == ["KLHigh", "warning", "0.5"]
    assert "1 of 6" in row
    assert "at <= 0.3 also on mild" in row
    assert row.endswith("no change up to 1")
    assert {"Other limits", "at <= 0.3 also on mild", "no change up to 1"} <= set(reported.page.words)
    assert reported.lines[-1] in reported.page.words


@pytest.mark.usefixtures("newest")
def test_what_is_suggested_comes_true_when_it_is_set(backtest: Backtest, runs: Path) -> None:
    def caught(value: float) -> set[str]:
        said = backtest(runs, "--format", "json", "--set", f"{KL_HIGH[0]}={value}")
        alerts = {run["run"]: [alert["alert"] for alert in run["alerts"]] for run in document(said)["runs"]}
        return {run for run, names in alerts.items() if "KLHigh" in names}

    assert caught(0.3) == {"mild", "wild"}
    assert caught(0.31) == {"wild"}


@pytest.mark.usefixtures("newest")
def test_a_run_with_limits_of_its_own_is_not_moved_by_those_of_all(
    backtest: Backtest, runs: Path, config: Path
) -> None:
    own = {"runs": "mild", "alerts": {"KL": {"warning": {"above_start": 0.9}}}}
    config.write_text(json.dumps({"overrides": [own]}))
    said = document(backtest(runs / "mild.jsonl", "--suggest", "--format", "json"))
    assert [each["lower"] for each in said["suggestions"] if each["limit"] == KL_HIGH[0]] == [None]


@pytest.mark.usefixtures("newest")
def test_no_one_who_did_not_ask_gets_suggestions(backtest: Backtest, runs: Path) -> None:
    assert "suggestions" not in document(backtest(runs / "calm.jsonl", "--format", "json"))


def test_limits_are_tried_beside_an_override_of_the_runs_that_the_demo_overrides(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"overrides": OVERRIDES}).replace('"1m"', '"2m"'))
    limit = next(limits(load(file)))
    assert limit.lower()
    assert limit.higher()

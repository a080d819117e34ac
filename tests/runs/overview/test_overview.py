"""The story of runs, as a watched folder and a file of panels tell it; no one is asked about alerts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from unittest import mock

import pytest

from exporter.http.exposition import Family
from exporter.runs import collector as watch_module
from exporter.runs.model.history import History
from exporter.runs.overview.models import Firing, RunId, leading_onset
from exporter.runs.overview.overview import Overview
from exporter.runs.overview.panels import PanelFile
from exporter.runs.overview.prometheus import Answers, Past
from tests.backtest.conftest import exploding_kl, log, wavering
from tests.real import eventually
from tests.runs.conftest import Clock, Watched
from tests.runs.overview.conftest import config

LINE_WITHOUT_A_SIGNAL = json.dumps(
    {
        "about": {},
        "notices": {"receivers": True, "keep_firing_seconds": 60, "book": {}},
        "panels": [
            {
                "title": "KL",
                "description": "",
                "unit": "short",
                "low": None,
                "high": None,
                "curves": [{"name": "KL", "signal": 3, "promql": "", "smoothed": False}],
                "queries": [],
                "limits": [],
            }
        ],
    }
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    passing = Clock()
    monkeypatch.setattr(watch_module, "time", passing)
    return passing


@pytest.fixture
def watched(clock: Clock, tmp_path: Path) -> Watched:
    (tmp_path / "runs").mkdir()
    return Watched(clock, tmp_path / "runs")


@pytest.fixture
def panels(panel_file: Path) -> PanelFile:
    return PanelFile(panel_file)


def story(watched: Watched, panels: PanelFile | None = None) -> Overview:
    watched.discover()
    return Overview(watched.watch.views, panels or PanelFile(Path("no-panels.json")), None)


def limited(reported: Overview, limits: Mapping[str, float]) -> Overview:
    """The story, where Prometheus has known these limits of the run since step 7."""
    lines = {each.name: each for each in reported._file.panels.limits}
    reported._prometheus.answers = Answers(
        now={lines[name]: {PPO: at} for name, at in limits.items()},
        pasts={PPO: Past((), {lines[name]: ((7, at), (30, at)) for name, at in limits.items()})},
        answered=1.0,
    )
    return reported


PPO = RunId("ppo")
KL = {"KLHigh": 0.55, "KLExplosion": 1.05}


def value(reported: Overview, name: str) -> list[float]:
    return [sample for family, samples in reported.samples() if family.name == name for _, sample in samples]


def test_a_run_is_reported_in_a_line_and_in_full(watched: Watched, panels: PanelFile):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = limited(story(watched, panels), KL)
    (summary,) = reported.runs()
    whole = reported.run(PPO)

    assert (summary.name, summary.state, summary.step) == ("ppo", "running", 30)
    assert {health.signal: health.state for health in summary.healths}["kl"] == "critical"
    assert [chart.title for chart in whole.charts] == ["Reward", "KL"]
    kl = whole.charts[1]
    assert (kl.first, kl.last, kl.unit) == (1, 30, "short")
    assert [len(piece) for curve in kl.curves for piece in curve.pieces] == [30]
    assert [limit.name for limit in kl.limits] == ["KLHigh", "KLExplosion"]
    assert [row.step for row in whole.rows] == list(range(11, 31))
    assert whole.rows[-1].values == {"reward": pytest.approx(0.51), "kl": pytest.approx(2.051)}
    assert reported.prometheus == ""


def test_without_prometheus_there_are_curves_without_limits_and_it_says_so(
    watched: Watched, panels: PanelFile
):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = story(watched, panels)
    whole, series = reported.run(PPO), reported.series(PPO, "kl")

    assert all(chart.curves and not chart.limits for chart in whole.charts)
    assert series.points
    assert series.limits == ()
    kl = {health.signal: health for health in whole.summary.healths}["kl"]
    assert (kl.state, kl.warning.high) == ("unknown", None)
    assert kl.diagnosis.startswith("Its limits are unknown. No Prometheus is configured (--prometheus-url)")
    assert reported.prometheus == kl.diagnosis.removeprefix("Its limits are unknown. ").partition(" How")[0]


def test_a_series_comes_with_its_limits_the_worst_first(watched: Watched, panels: PanelFile):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    series = limited(story(watched, panels), KL).series(PPO, "kl")

    assert [step for step, _ in series.points] == list(range(1, 31))
    worst, other = series.limits
    assert (worst.alert, worst.severity, worst.side) == ("KLExplosion", "critical", "high")
    assert (other.alert, other.severity, other.side) == ("KLHigh", "warning", "high")
    assert other.points == ((7, 0.55), (30, 0.55)), "they begin when Prometheus did"


def test_each_limit_of_an_alert_that_has_several_is_in_the_series(watched: Watched, panels: PanelFile):
    log(watched.folder / "ppo.jsonl", [{"truncated_ratio": ratio} for ratio in wavering(0.1, 40)])
    limits = {"Truncation from the start": 0.4, "Truncation": 0.9}
    series = limited(story(watched, panels), limits).series(PPO, "truncated_ratio")

    assert [limit.alert for limit in series.limits] == ["Truncation"] * 2
    assert {limit.points[-1][1] for limit in series.limits} == {0.4, 0.9}


def test_where_nothing_is_finite_a_series_is_broken_and_not_denied(watched: Watched, panels: PanelFile):
    nan = math.nan
    log(watched.folder / "ppo.jsonl", [{"kl": nan, "grad_norm": norm} for norm in (1, 2, nan, nan, 5, nan)])
    reported = story(watched, panels)
    kl, norm = reported.series(PPO, "kl"), reported.series(PPO, "grad_norm")

    assert kl.points == ()
    assert [step for step, _ in norm.points] == [1, 2, 3, 5, 6]
    assert [value for _, value in norm.points if math.isfinite(value)] == [1, 2, 5]


def test_the_curve_breaks_where_the_run_was_resumed_and_restarts_with_the_run(
    watched: Watched, panels: PanelFile
):
    path = log(watched.folder / "ppo.jsonl", exploding_kl(calm=20, high=0))
    reported = story(watched, panels)
    resumed = "".join(f'{{"step": {step}, "reward": 0.4{step}, "kl": 0.05}}\n' for step in range(15, 31))
    with path.open("a") as file:
        file.write(resumed)
    watched.look(1.0)
    whole = reported.run(PPO)
    with path.open("a") as file:
        file.write("".join(f'{{"step": {step}, "reward": 0.{step}, "kl": 0.05}}\n' for step in range(1, 4)))
    watched.look(1.0)
    again = reported.run(PPO)

    assert [(piece[0][0], piece[-1][0]) for piece in whole.charts[0].curves[0].pieces] == [(1, 20), (21, 30)]
    assert (whole.summary.restarts, whole.summary.resumes) == (1, 1)
    assert [(piece[0][0], piece[-1][0]) for piece in again.charts[0].curves[0].pieces] == [(1, 3)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"panels": 3, "about": {}}',
        '{"panels": [{}], "about": {}}',
        '{"panels": [], "about": []}',
        '{"panels": [], "about": {"KLHigh": 3}}',
        LINE_WITHOUT_A_SIGNAL,
        "[" * 5000 + "]" * 5000,
        " " * (5 * 1024 * 1024),
    ],
)
def test_an_invalid_file_leaves_the_last_good_one_is_reported_once_and_counted(
    watched: Watched, panel_file: Path, panels: PanelFile, logged: list[str], content: str
):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = limited(story(watched, panels), KL)
    assert reported.series(PPO, "kl") is not None
    panel_file.write_text(content)
    for _ in range(3):
        panels.poll()
        series = reported.series(PPO, "kl")
        assert series.limits

    (said,) = logged
    assert str(panel_file) in said
    assert " Expected " in said
    assert said.endswith("run python generate.py. The previous panels stay in use.")
    assert value(reported, "stepwatch_panels_errors_total") == [1]


def test_without_a_file_there_are_curves_without_limits_and_it_says_so_once(
    watched: Watched, panel_file: Path, logged: list[str]
):
    content = panel_file.read_bytes()
    panel_file.unlink()
    log(watched.folder / "ppo.jsonl", exploding_kl())
    panels = PanelFile(panel_file)
    reported = story(watched, panels)
    whole = reported.run(PPO)
    panels.poll()

    assert [chart.title for chart in whole.charts] == ["reward", "kl"]
    assert whole.charts[0].description.startswith("Mean score of a step's samples")
    assert not any(chart.limits for chart in whole.charts)
    (said,) = logged
    assert said.endswith("Curves are shown without limits.")
    panel_file.write_bytes(content)
    panels.poll()
    found = limited(reported, KL).run(PPO)
    assert found.charts[1].limits, "a file that comes later is taken up"


def test_other_panels_are_taken_up_by_themselves(
    watched: Watched, panel_file: Path, panels: PanelFile, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("exporter.runs.overview.panels.INTERVAL_SECONDS", 0.01)
    reported, before = story(watched, panels), panels.panels
    reported.start()
    panel_file.write_text(panel_file.read_text() + " ")
    eventually(lambda: panels.panels is not before)
    reported.stop()


def test_anyone_who_asks_waits_for_no_disk(watched: Watched, panel_file: Path, panels: PanelFile):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = story(watched, panels)
    panel_file.unlink()
    os.mkfifo(panel_file)  # anyone who opens it waits
    asking = [
        Thread(target=ask, daemon=True)
        for ask in (reported.runs, lambda: reported.run(PPO), lambda: reported.series(PPO, "kl"))
    ]
    for each in asking:
        each.start()
        each.join(5)
    assert not any(each.is_alive() for each in asking)


def test_a_start_of_the_exporter_rebuilds_it_from_the_log(clock: Clock, watched: Watched, panels: PanelFile):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    before = story(watched, panels).run(PPO)
    again = story(Watched(clock, watched.folder), panels).run(PPO)

    assert again.charts == before.charts


def test_metrics_of_the_story_are_those_that_the_docs_list(watched: Watched):
    families = [family for family, _ in story(watched).samples()]

    names = ("stepwatch_", "rl_departure_")
    assert all(isinstance(family, Family) and family.name.startswith(names) for family in families)
    docs = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    assert all(f"`{family.name}`" in docs for family in families)


def test_what_moved_first_is_told_while_an_alert_fires_from_the_onset_of_the_worst(watched: Watched):
    """Of a run that logs nothing new it is not computed again."""
    log(watched.folder / "ppo.jsonl", exploding_kl(calm=60, high=20))
    reported = story(watched)
    assert (value(reported, "rl_departure_step"), reported.run(PPO).departures) == ([], None)

    warning, page = _begun("KLHigh", "warning", 62), _begun("KLExplosion", "critical", 64)
    reported._prometheus.answers = Answers(firing={PPO: (warning, page)}, answered=1.0)
    ((signal, away),) = reported.run(PPO).departures
    assert (signal, away.step) == ("kl", 61)
    assert away.deviations > 18
    assert value(reported, "rl_departure_step") == [61]
    assert value(reported, "rl_departure_deviations") == [away.deviations]

    with mock.patch.object(History, "departures") as asked:
        assert value(reported, "rl_departure_step") == [61]
    asked.assert_not_called()


def test_the_first_of_the_worst_alerts_leads_if_no_other_one_mutes_it():
    warning, page = _begun("KLHigh", "warning", 20), _begun("KLExplosion", "critical", 64)
    muted = replace(_begun("RewardCollapse", "critical", 3), inhibited_by="RunFailed")

    assert leading_onset([warning, page, _begun("NonFinite", "critical", 70), muted]) == 64
    assert leading_onset([muted, _begun("RunFinished", "info", 9)]) is None


def _begun(name: str, severity: str, step: int) -> Firing:
    return Firing(name, severity, "", "", "", "", "", "", 1.0, 0.0, step=step)


def test_a_run_that_stands_still_is_called_stalled_wherever_it_is_shown(watched: Watched) -> None:
    log(watched.folder / "ppo.jsonl", exploding_kl())
    overview = story(watched)
    assert [run.state for run in overview.runs()] == ["running"]
    stalled = Firing("Stalled", "critical", "progress", "", "", "", "", "", 1.0, 0.0)
    overview._prometheus.answers = Answers(firing={PPO: (stalled,)}, answered=1.0)

    assert [run.state for run in overview.runs()] == ["stalled"]
    details = overview.run(PPO)
    assert details.summary.state == "stalled"


def test_what_fires_about_runs_of_other_machines_is_listed_with_their_names(watched: Watched):
    def firing(name: str, severity: str, run: str = "") -> Firing:
        labels = frozenset({"alertname": name, "run": run}.items())
        return Firing(name, severity, "", "is sick", "", "", "", "", None, None, labels)

    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = story(watched)
    reported._prometheus.answers = Answers(
        {
            PPO: (firing("KLHigh", "warning", "ppo"),),
            RunId("elsewhere"): (
                firing("KLExplosion", "critical", "elsewhere"),
                firing("RunFinished", "info", "elsewhere"),
            ),
            RunId(""): (firing("GPUXid", "warning"),),
        },
        answered=1.0,
    )

    assert [(alert.name, alert.summary) for alert in reported.others()] == [
        ("KLExplosion", "elsewhere: is sick"),
        ("GPUXid", "is sick"),
    ]


def test_pages_know_of_receivers_the_runbook_of_gpus_and_the_end_of_an_alert(
    watched: Watched, panels: PanelFile
):
    log(watched.folder / "ppo.jsonl", exploding_kl())
    reported = story(watched, panels)
    plain = Firing("GPUXid", "critical", "gpu", "", "", "", "", "", None, None)
    about = replace(plain, name="KLHigh", passed=1000.0)
    reported._prometheus.answers = Answers(firing={RunId(""): (plain,), PPO: (about,)}, answered=1.0)

    (other,) = reported.others()
    assert [heading for heading, _ in other.book] == ["Meaning", "Known causes", "Mitigation"]
    assert [alert.ends for alert in reported.runs()[0].firing] == [1000.0 + keep_firing_seconds()]
    assert other.ends is None
    assert reported.notifies is bool(config().receivers)

    older = story(watched)  # a file without notices claims nothing
    older._prometheus.answers = reported._prometheus.answers
    assert (older.notifies, older.others()[0].book, older.runs()[0].firing[0].ends) == (True, (), None)


def keep_firing_seconds() -> float:
    return config().notify.keep_firing_for.seconds

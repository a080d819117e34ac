"""The page of a backtest: what people see of a run, and that it needs nothing but itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.backtest.conftest import Backtest, document, exploding_kl, log, wavering
from tests.backtest.pages import Page

pytestmark = pytest.mark.usefixtures("newest")

Shown = Callable[..., Page]

HEALTHY = [{"reward": value, "response_length": 300.0} for value in wavering(0.5, 40)]


@pytest.fixture
def shown(backtest: Backtest) -> Shown:
    """The page about these places."""

    def run(*arguments: object) -> Page:
        return Page(backtest(*arguments, "--format", "html")[1])

    return run


def test_all_runs_stand_on_top_the_worst_first_and_what_was_not_judged_last(
    shown: Shown, tmp_path: Path
) -> None:
    less = [{**record, "kl": 0.4 * record["kl"]} for record in exploding_kl()]
    logs = {"fine": HEALTHY, "lost": exploding_kl(), "drifts": less}
    places = [log(tmp_path / f"{name}.jsonl", records) for name, records in logs.items()]
    page = shown(tmp_path / "gone.jsonl", *places)

    rows = [words for words in page.words if words in {"gone", *logs} or words.startswith("/")]
    assert rows[:4] == ["lost", "drifts", "fine", f"{tmp_path}/gone.jsonl"]
    inside = {target for target in page.attributes("href") if target.startswith("#")}
    assert {f"#{anchor}" for anchor in page.attributes("id")} >= inside
    assert "4 runs: 1 with a critical alert, 1 with warnings only, 1 silent, 1 not judged." in page.text
    assert "not judged: no such file or folder" in page.words


def test_reports_what_was_tried_and_what_was_left_out(shown: Shown, tmp_path: Path) -> None:
    page = shown(log(tmp_path / "a.jsonl", HEALTHY), "--set", "alerts.KL.warning.stddevs=2")
    assert "alerts.KL.warning.stddevs=2" in page.words
    assert any(words.startswith("Not replayed") and "Stalled" in words for words in page.words)


def test_names_are_shown_and_not_run(shown: Shown, tmp_path: Path) -> None:
    evil = "<script>alert(1)<script>"
    log(tmp_path / f"{evil}.jsonl", exploding_kl())
    unread = tmp_path / "<img src=x onerror=alert(2)>.txt"
    unread.write_text("milk\n")
    page = shown(tmp_path, unread)

    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "object", "link"})
    assert evil in page.words
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]


def test_names_that_are_no_text_and_values_beyond_all_bounds_are_shown_as_far_as_they_can_be(
    backtest: Backtest, tmp_path: Path
) -> None:
    records = [{"reward": 1.7e308 * (-1) ** step, "kl": 5e-324 * (step % 2)} for step in range(30)]
    log(tmp_path / "runs" / os.fsdecode(b"a\xff\x01.jsonl"), records)
    backtest(tmp_path / "runs", os.fsdecode(b"gone\xff"), "--report", tmp_path)

    page = Page((tmp_path / "index.html").read_text())
    assert {r"a\xff", r"gone\xff"} <= {words.replace("\x01", "") for words in page.words}
    for picture in re.findall("<svg.*?</svg>", page.text, re.S):
        ElementTree.fromstring(picture)
    saved = json.loads((tmp_path / "backtest.json").read_text())
    assert {run["files"][0].partition("\\")[0] for run in saved["runs"]} == {"gone", f"{tmp_path}/runs/a"}


def test_nothing_is_fetched_from_anywhere(shown: Shown, config: Path, tmp_path: Path) -> None:
    config.write_text("links: {runbook: 'https://docs.example.org/runbook'}\n")
    page = shown(log(tmp_path / "a.jsonl", exploding_kl()), "--suggest")

    targets = page.attributes("href", "src", "srcset", "action", "data", "poster", "xlink:href")
    away = {target.partition("#")[0] for target in targets if not target.startswith("#")}
    assert away == {"https://docs.example.org/runbook"}
    assert "https://docs.example.org/runbook#klexplosion" in targets
    assert not re.search(r"@import|url\(|<script|http-equiv", page.text)


def test_a_runbook_in_the_checkout_is_found_from_wherever_the_page_lies(shown: Shown, tmp_path: Path) -> None:
    page = shown(log(tmp_path / "a.jsonl", exploding_kl()))
    (target,) = {target for target in page.attributes("href") if target.endswith("#klexplosion")}
    path = Path(target.removeprefix("file://").partition("#")[0])
    assert path.is_absolute()
    assert "### KLExplosion" in path.read_text()


def test_curves_of_what_fired_come_first_and_only_panels_with_data(shown: Shown, tmp_path: Path) -> None:
    assert shown(log(tmp_path / "a.jsonl", exploding_kl())).titles == ["KL", "Reward"]
    assert shown(log(tmp_path / "b.jsonl", HEALTHY)).titles == ["Reward", "Response length"]


def test_a_curve_is_what_was_logged_at_its_steps(shown: Shown, tmp_path: Path) -> None:
    rewards = [index / 100 for index in range(1, 31)]
    page = shown(log(tmp_path / "a.jsonl", [{"reward": value} for value in rewards], first=101))

    (reward, _) = page.chart("Reward").lines("curve")
    assert page.chart("Reward").legend[:2] == ["reward", "mean"]
    (points,) = reward
    assert [step for step, _ in points] == pytest.approx(range(101, 131), abs=0.05)
    assert [value for _, value in points] == pytest.approx(rewards, abs=0.002)


def test_alerts_are_shaded_from_their_first_step_to_their_last_and_named(
    shown: Shown, backtest: Backtest, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", [*exploding_kl(20, 10), *exploding_kl(20, 0)], first=501)
    chart = shown(path).chart("KL")

    alerts = document(backtest(path, "--format", "json"))["runs"][0]["alerts"]
    spans = {alert["severity"]: (alert["first_step"], alert["last_step"]) for alert in alerts}
    assert spans["critical"] == (523, 530)
    # the red one lies over the orange one
    assert [severity for severity, _, _ in chart.bands()] == ["warning", "critical"]
    for severity, first, last in chart.bands():
        assert (first, last) == pytest.approx(spans[severity], abs=0.1)
    assert "KLExplosion, critical: steps 523 to 530" in chart.legend


def test_the_line_of_a_limit_is_at_the_threshold_that_the_rule_used(
    shown: Shown, backtest: Backtest, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", exploding_kl())
    alerts = document(backtest(path, "--format", "json"))["runs"][0]["alerts"]
    chart = shown(path).chart("KL")

    for alert, kind in (("KLHigh", "limit warning"), ("KLExplosion", "limit critical")):
        (reported,) = [each for each in alerts if each["alert"] == alert]
        assert chart.at(kind, reported["first_step"]) == pytest.approx(reported["threshold"], abs=0.02)


def test_a_limit_far_off_leaves_the_curve_its_shape_and_is_reported_in_words(
    shown: Shown, tmp_path: Path
) -> None:
    records = [{"reward": 0.5, "kl": kl} for kl in wavering(0.01, 40, 0.001)]
    chart = shown(log(tmp_path / "a.jsonl", records)).chart("KL")
    assert chart.lines("limit critical") == []
    assert "limit of KLExplosion: 1.009, off the chart (critical)" in chart.legend


def test_a_curve_is_broken_at_what_is_not_a_number_and_where_the_steps_go_back(
    shown: Shown, tmp_path: Path
) -> None:
    rewards = [*wavering(0.5, 10), float("nan"), *wavering(0.5, 10)]
    path = log(tmp_path / "a.jsonl", [{"reward": value, "kl": 0.01} for value in rewards])
    (reward, _) = shown(path).chart("Reward").lines("curve")
    assert [round(step) for piece in reward for step in (piece[0][0], piece[-1][0])] == [1, 10, 12, 21]

    with path.open("a") as out:
        out.writelines(json.dumps({"step": step, "reward": 0.7}) + "\n" for step in range(15, 31))
    (reward, _) = shown(path).chart("Reward").lines("curve")
    assert [round(step) for step, _ in (piece[0] for piece in reward)] == [1, 12, 15]


def test_a_run_of_one_record_is_a_dot_and_one_of_none_has_no_picture(shown: Shown, tmp_path: Path) -> None:
    one = shown(log(tmp_path / "a.jsonl", [{"reward": 0.5, "kl": 0.1}]))
    assert [[len(piece) for piece in line] for line in one.chart("KL").lines("curve")] == [[1]]

    none = shown(log(tmp_path / "b.jsonl", [{"reward": float("nan"), "kl": float("nan")}] * 30))
    assert none.titles == []


def test_a_report_is_kept_in_a_folder_beside_what_is_said(backtest: Backtest, tmp_path: Path) -> None:
    path, folder = log(tmp_path / "a.jsonl", exploding_kl()), tmp_path / "new" / "report"
    code, out, _ = backtest(path, "--report", folder, "--set", "alerts.KL.warning.stddevs=4")

    assert (code, out.splitlines()[0]) == (0, "a: 30 records, steps 1 to 30, flat_jsonl")
    assert Page((folder / "index.html").read_text()).titles == ["KL", "Reward"]
    saved = json.loads((folder / "backtest.json").read_text())
    assert [run["run"] for run in saved["runs"]] == ["a"]
    assert saved["tried"] == ["alerts.KL.warning.stddevs=4"]


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    backtest: Backtest, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", HEALTHY)
    code, out, err = backtest(path, "--report", path / "report")
    assert (code, out) == (2, "")
    assert err == (
        f"--report {path}/report: Not a directory. Expected: a folder to write index.html and backtest.json "
        "to. Fix: name another one, or correct its permissions.\n"
    )

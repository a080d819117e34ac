"""`python -m stepwatch backtest` reports the alerts of old runs, and the files that it cannot judge."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from stepwatch.backtest.report import NOTHING
from tests.backtest.conftest import Backtest, document, exploding_kl, log, wavering
from tests.formats import CHECKOUT


def _alerts(found: dict[str, object]) -> dict[str, dict[str, object]]:
    return {alert["alert"]: alert for alert in found["alerts"]}  # type: ignore[attr-defined]


def test_an_alert_is_reported_with_its_records_steps_value_and_limit(
    backtest: Backtest, prometheus: str, tmp_path: Path
) -> None:
    path = log(tmp_path / "ppo" / "a.jsonl", exploding_kl(), first=101)
    (found,) = document(backtest(path.parent, "--format", "json"))["runs"]

    assert {key: found[key] for key in ("run", "files", "format", "records", "first_step", "last_step")} == {
        "run": "a",
        "files": [str(path)],
        "format": "flat_jsonl",
        "records": 30,
        "first_step": 101,
        "last_step": 130,
    }
    assert _alerts(found)["KLExplosion"] == {
        "alert": "KLExplosion",
        "severity": "critical",
        "first_record": 23,  # the third high one
        "last_record": 30,
        "first_step": 123,
        "last_step": 130,
        "value": pytest.approx(2.049),  # the smallest of three in a row
        "threshold": pytest.approx(
            1.049 if 6 * 0.886 * _mean_jump() < 1 else 0.049 + 6 * 0.886 * _mean_jump()
        ),
        "inhibited": False,
    }


def _mean_jump() -> float:
    """Of the KL between the first 23 records: 22 differences, one of them the jump."""
    kls = [record["kl"] for record in exploding_kl()[:23]]
    jumps = [abs(after - before) for before, after in pairwise(kls)]
    return sum(jumps) / len(jumps)


def test_a_healthy_run_raises_nothing_and_the_table_says_so(
    backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", [{"reward": value} for value in wavering(0.5, 40)])
    code, out, _ = backtest(path)
    assert code == 0
    assert out.splitlines()[:2] == ["a: 40 records, steps 1 to 40, flat_jsonl", "  no alert"]
    assert "Stalled" in out.splitlines()[-1]
    assert "KLHigh" not in out.splitlines()[-1]


def test_a_total_that_steps_exceed_is_reported_as_the_mute_that_it_was_live(
    backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", [{**record, "total_steps": 20} for record in exploding_kl()])
    (found,) = document(backtest(path, "--format", "json"))["runs"]
    whole = log(tmp_path / "b.jsonl", exploding_kl())

    assert found["muted"] == [20]
    assert "KLExplosion" in _alerts(found)
    assert backtest(path)[1].splitlines()[1].strip() == (
        "its log says finished at step 20: live, no alert fires until the next step"
    )
    assert backtest(path, "--format", "html")[1].count("finished at step 20") == 1
    assert document(backtest(whole, "--format", "json"))["runs"][0]["muted"] == []


def test_a_value_is_tried_without_an_edit(backtest: Backtest, newest: None, tmp_path: Path) -> None:
    path = log(tmp_path / "a.jsonl", exploding_kl())
    tried = ("--set", "alerts.KL.warning=null", "--set", "alerts.KL.critical.above_start=2.5")
    (found,) = document(backtest(path, "--format", "json", *tried))["runs"]
    assert found["alerts"] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("alerts.KL.warning.above_start=-1", "--set: alerts.KL.warning.above_start: -1 is negative."),
        ("alerts.KL.warning.above_strat=1", "did you mean above_start?"),
        ("alerts.KLL.warning.above_start=1", "did you mean KL?"),
        ("alerts.KL.warning", "has no value"),
        ("alerts.KL.enabled=no", "Expected: true or false"),
        ("alerts.KL.warning.above_start=3", "is beyond the critical limit 1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(change: str, says: str, backtest: Backtest, tmp_path: Path) -> None:
    code, out, err = backtest(log(tmp_path / "a.jsonl", exploding_kl()), "--set", change)
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(("severity", "code"), [("critical", 0), ("warning", 1)])
def test_fails_on_the_severity_that_is_asked_for(
    severity: str, code: int, backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    path = log(tmp_path / "a.jsonl", exploding_kl())
    only_warns = ("--set", "alerts.KL.critical=null")
    assert backtest(path, "--fail-on", severity, *only_warns)[0] == code


def test_a_file_that_cannot_be_judged_is_reported_and_the_rest_goes_on(
    backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    good, text = log(tmp_path / "good.jsonl", exploding_kl()), tmp_path / "notes.txt"
    text.write_text("milk, bread\n")
    reported = backtest(text, good, tmp_path / "gone.jsonl", "--format", "json", "--fail-on", "warning")
    by_file = {found["files"][0]: found for found in document(reported)["runs"]}

    assert reported[0] == 2
    assert by_file[str(text)]["error"] == "no trainer records"
    assert by_file[str(tmp_path / "gone.jsonl")]["error"] == "no such file or folder"
    assert len(by_file[str(good)]["alerts"]) == 2


@pytest.mark.parametrize("content", [None, "milk, bread\n"])
def test_a_folder_without_a_run_fails(
    content: str | None, backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    if content:
        (tmp_path / "runs" / "notes.txt").write_text(content)
    code, out, _ = backtest(tmp_path / "runs", "--fail-on", "critical")
    assert code == 2
    fix = "Fix: name logs or their folder: `make backtest RUNS=/path/to/logs`"
    assert out == (NOTHING if content else f"{tmp_path}/runs: no log found in it. {fix}") + "\n"


def test_a_run_without_signals_of_rules_is_distinguished_from_a_healthy_one(
    backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    for key, says in (("points", "no alert: none of its keys is a signal"), ("score", "SignalsUnknown")):
        path = log(tmp_path / f"{key}.jsonl", [{"data": {f"my/{key}": 0.5 + step / 7}} for step in range(20)])
        code, out, _ = backtest(path)
        assert (code, says in out) == (0, True)


def test_other_files_in_a_folder_are_not_an_error(backtest: Backtest, newest: None, tmp_path: Path) -> None:
    log(tmp_path / "runs" / "a.jsonl", exploding_kl())
    (tmp_path / "runs" / "notes.txt").write_text("milk, bread\n")
    reported = backtest(tmp_path / "runs", "--format", "json")
    assert [found["run"] for found in document(reported)["runs"]] == ["a"]
    assert reported[0] == 0


@pytest.mark.parametrize(
    "records",
    [
        [{"reward": 1.0, "kl": 0.1}],
        [{"loss": 1.0, "learning_rate": 0.1 / (step + 1)} for step in range(50)],
        [{"reward": None, "kl": None}] * 2,
    ],
    ids=["one record", "no reward", "nothing but null"],
)
def test_a_run_with_next_to_nothing_in_it_is_judged(
    records: list[dict[str, float]], backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    code, out, _ = backtest(log(tmp_path / "a.jsonl", records))
    assert (code, "a: " in out) == (0, True)


def test_a_run_of_nan_alone_raises_only_that(backtest: Backtest, newest: None, tmp_path: Path) -> None:
    records = [
        {"reward": math.nan, "kl": math.nan, "grad_norm": math.nan, "lr": step / 7} for step in range(40)
    ]
    (found,) = document(backtest(log(tmp_path / "a.jsonl", records), "--format", "json"))["runs"]
    assert [(each["alert"], each["first_record"], each["value"]) for each in found["alerts"]] == [
        ("NonFinite", 1, 1),
        ("NonFinite", 3, 3),
    ]


def test_a_run_longer_than_one_answer_of_prometheus_is_judged_to_its_end(
    backtest: Backtest, newest: None, tmp_path: Path
) -> None:
    calm, high = 11_000, 20
    path = log(tmp_path / "a.jsonl", exploding_kl(calm, high))
    (found,) = document(backtest(path, "--format", "json"))["runs"]
    kl = _alerts(found)["KLExplosion"]
    assert (kl["first_record"], kl["last_record"]) == (calm + 3, calm + high)


def test_two_logs_of_one_name_are_two_runs_and_overrides_know_them_by_name(
    backtest: Backtest, newest: None, config: Path, tmp_path: Path
) -> None:
    config.write_text(
        f"runs: {{path: {tmp_path / 'runs'}}}\n"
        'overrides: [{runs: "quiet/*", alerts: {KL: {enabled: false}}}]\n'
    )
    for folder in ("quiet", "loud"):
        log(tmp_path / "runs" / folder / "a.jsonl", exploding_kl())
    runs = document(backtest(*sorted((tmp_path / "runs").glob("*/*")), "--format", "json"))["runs"]
    assert {found["run"]: len(found["alerts"]) for found in runs} == {"loud/a": 2, "quiet/a": 0}


def test_several_processes_report_the_same_as_one(backtest: Backtest, newest: None, tmp_path: Path) -> None:
    for number in range(5):
        log(tmp_path / "runs" / f"{number}.jsonl", exploding_kl(20 + number))
    one, four = (backtest(tmp_path / "runs", "--format", "json", "--jobs", jobs) for jobs in (1, 4))
    assert one == four
    assert len(document(one)["runs"]) == 5


def test_nothing_of_a_backtest_is_left_behind(newest: None, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = log(tmp_path / "a.jsonl", exploding_kl())
    command = [sys.executable, "-m", "stepwatch", "backtest", str(path)]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "KLExplosion" in done.stdout
    assert done.stderr == ""  # no bar without a terminal
    assert list(scratch.iterdir()) == []

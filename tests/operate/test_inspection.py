"""`python -m stepwatch inspect` reports what is read, and docs/formats.md shows it of the real logs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.runs.formats.json_logs import FlatJsonl
from exporter.runs.signals import Reading
from exporter.runs.signals.record import Record, TotalSteps
from stepwatch.__main__ import main
from stepwatch.operate.logfiles import NOT_READ
from tests import formats
from tests.runs.lines import append, console, measured, verl_json
from tests.runs.speaking import Speaking, says

CHECKOUT = formats.CHECKOUT
PAGE = """\
# TYPE rl_insight_monitor_training_global_step gauge
rl_insight_monitor_training_global_step{project="math",experiment_name="ppo"} %d
rl_insight_monitor_critic_score_mean{project="math",experiment_name="ppo"} 0.5
rl_insight_monitor_env_depth{project="math",experiment_name="ppo"} 3
"""
Reporting = Callable[..., list[str]]


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text('signals: {reward: ["env/score"]}\n')
    return path


@pytest.fixture(name="reported")
def _reported(config: Path, capsys: pytest.CaptureFixture[str]) -> Reporting:
    """What is reported about some places, line by line."""

    def reported(*places: object, found: bool = True) -> list[str]:
        assert main(["inspect", "--config", str(config), *map(str, places)]) == (0 if found else 1)
        return capsys.readouterr().out.splitlines()

    return reported


def heads(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(" ")]


def origins(lines: list[str]) -> list[str]:
    return [line.partition("read from: ")[2] for line in lines if "    read from: " in line]


# Logs


def test_a_log_is_reported_with_format_steps_signals_and_other_keys(
    tmp_path: Path, reported: Reporting
) -> None:
    values = {"actor/entropy": 0.5, "env/score": 1.0, "env/depth": 3}
    log = tmp_path / "a.jsonl"
    append(log, *(verl_json(step, values | {"x": step}) for step in (3, 4)))

    assert reported(log) == [
        "a: verl (verl_jsonl), 2 records, steps 3-4",
        "    read from: a.jsonl",
        "    signals:",
        "      entropy: actor/entropy",
        "      reward: env/score",
        "    without a signal: env/depth, x",
    ]


def test_what_each_signal_was_read_from_is_reported(tmp_path: Path, reported: Reporting) -> None:
    """Also of signals that come with some records only, or that several keys make."""
    log = tmp_path / "a.jsonl"
    append(
        log,
        verl_json(1, {"critic/score/mean": 0.5, "perf/total_num_tokens": 800, "perf/time_per_step": 2.0}),
        verl_json(2, {f"val-core/set{n}/acc/mean@8": 0.5 for n in range(9)} | {"gdpo/format/mean": 1.0}),
        verl_json(3, {"critic/rewards/mean": 0.5, "val-core/set1/response_tokens/mean@8": 900}),
    )

    lines = reported(log)

    first = ", ".join(f"val-core/set{n}/acc/mean@8" for n in range(6))
    assert lines[2:] == [
        "    signals:",
        "      reward: critic/rewards/mean",
        "      reward_component: format",
        "      step_seconds: perf/time_per_step",
        "      step_tokens: perf/total_num_tokens",
        "      tokens_per_second: perf/total_num_tokens, perf/time_per_step",
        "      validation_component: set0, set1, set2, set3, set4, set5 and 3 more",
        f"      validation_score: {first} and 3 more",
        "    without a signal: val-core/set1/response_tokens/mean@8",
    ]


def test_keys_that_look_like_a_signal_are_reported_with_lines_to_paste(
    tmp_path: Path, reported: Reporting, config: Path
) -> None:
    log = tmp_path / "a.jsonl"
    append(log, *(json.dumps({"step": n, "env/judge_reward": n / 8, "my kl": 0.1}) + "\n" for n in range(8)))

    lines = reported(log)
    place = lines.index("signals:")

    assert "    in place of `#signals: ...`, or below your own `signals:`, and run `make up`:" in lines
    assert lines[place:] == ["signals:", '  reward: ["env/judge_reward"]', '  kl: ["my kl"]']
    config.write_text("\n".join(lines[place:]))
    again = reported(log)
    assert "      reward: env/judge_reward" in again
    assert "      kl: my kl" in again
    assert "signals:" not in again


def test_a_key_that_is_mapped_makes_a_log_a_trainers_and_another_is_named_with_the_fix(
    tmp_path: Path, reported: Reporting, config: Path
) -> None:
    log = tmp_path / "a.jsonl"
    append(log, *(json.dumps({"step": n, "my/points": n / 8, "note": "text"}) + "\n" for n in range(8)))

    assert reported(log, found=False)[0].startswith(
        "a.jsonl: JSON without a known key of a trainer: my/points."
    )
    config.write_text('signals: {reward: ["my/points"]}\n')
    assert "      reward: my/points" in reported(log)
    config.write_text('signals: {reward: [{mean_of: "my.+"}]}\n')
    assert "      reward: my/points" in reported(log)


def test_a_log_below_the_watched_folder_has_the_name_that_the_stack_gives_it(
    tmp_path: Path, config: Path, reported: Reporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("runs: {path: ./logs}\n")
    folder = tmp_path / "logs/ppo"
    folder.mkdir(parents=True)
    append(folder / "gsm8k.log", console(1, measured(1)))
    monkeypatch.chdir(folder)

    for place in (folder / "gsm8k.log", folder, "gsm8k.log"):
        lines = reported(place)
        assert heads(lines) == ["ppo/gsm8k: verl (verl_console), 1 record, step 1"]
        assert origins(lines) == ["ppo/gsm8k.log"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (bytes(range(256)), "no text"),
        (b"hello\n", "no trainer records"),
        (b'{\n "hidden_size": 4\n}\n', "JSON without a history of steps"),
        (b'{\n "cells": []\n}\n', NOT_READ["notebook"]),
    ],
)
def test_a_file_that_is_not_a_log_is_reported_as_what_it_is(
    tmp_path: Path, reported: Reporting, content: bytes, says: str
) -> None:
    (tmp_path / "x.txt").write_bytes(content)

    assert reported(tmp_path / "x.txt", found=False)[0] == f"x.txt: {says}"


def test_a_path_that_is_not_there_is_reported_with_where_to_read_on(
    tmp_path: Path, reported: Reporting
) -> None:
    (line,) = reported(tmp_path / "nowhere", found=False)

    assert "nowhere" in line
    assert "docs/formats.md" in line


# Pages


def test_a_page_is_reported_with_its_runs_signals_and_other_metrics(reported: Reporting) -> None:
    with Speaking(says(PAGE.encode() % 57)) as server:
        lines = reported(f"{server.url}/metrics")

    assert lines[0] == "math/ppo: verl (prometheus_page), 1 record, step 57"
    assert lines[1].startswith(f"    read from: {server.url}/metrics (")
    assert lines[2:] == [
        "    signals:",
        "      reward: critic_score_mean",
        "    without a signal: env_depth",
    ]


def test_a_page_of_the_configuration_is_read_as_it_says(config: Path, reported: Reporting) -> None:
    page = b"# TYPE rounds gauge\nrounds 8\n# TYPE reward_mean gauge\nreward_mean 0.5\n"
    with Speaking(says(page)) as server:
        config.write_text(f"runs: {{pages: [{{url: '{server.url}/metrics', run: mine, step: rounds}}]}}\n")
        lines = reported(f"{server.url}/metrics")

    assert heads(lines) == ["mine: generic (prometheus_page), 1 record, step 8"]


@pytest.mark.parametrize("page", [PAGE.encode() % 0, b"# TYPE vllm_requests gauge\nvllm_requests 3\n", b""])
def test_a_page_without_a_step_says_what_that_may_mean(reported: Reporting, page: bytes) -> None:
    with Speaking(says(page)) as server:
        line, _ = reported(f"{server.url}/metrics", found=False)

    assert line == (
        f"{server.url}/metrics: no step yet: it has no metric of a trainer, or none of them was set so far"
    )


def test_a_page_that_cannot_be_read_is_reported_with_the_reason_and_no_secret(reported: Reporting) -> None:
    with Speaking(says(b"gone", 404)) as server:
        line, _ = reported(f"{server.url}/metrics?key=abc", found=False)

    assert line == f"{server.url}/metrics: answers 404 Not Found."


def test_make_hands_an_address_on_as_it_is(config: Path) -> None:
    with Speaking(says(PAGE.encode() % 57)) as server:
        settings = (f"RUNS={server.url}/metrics", f"CONFIG={config}", f"PY={sys.executable}", "PYTHON=true")
        command = ["make", "--no-print-directory", "inspect", *settings]
        ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("math/ppo: ")


# The page of formats


def reported_keys(what: str) -> list[str]:
    """The keys that the page of formats tells for something; those that need another one are left out."""
    rows = (row.strip("| ").split(" | ") for row in formats.names().splitlines())
    reported = dict(row for row in rows if len(row) == 2)[what]
    return [key.strip("`") for key in reported.split(", ") if " with " not in key]


@pytest.mark.parametrize("signal", formats.MAIN)
def test_each_name_of_the_page_of_formats_is_read_as_its_signal(signal: str) -> None:
    for key in reported_keys(f"`{signal}`"):
        for spelling in (key, key.upper(), f"train/{key}"):
            assert Reading("generic").signals({spelling: 0.5}).get(signal) == 0.5, spelling


def test_each_name_of_a_step_or_time_is_read_as_that() -> None:
    for key in reported_keys("the step"):
        (record,) = FlatJsonl().parse(json.dumps({key: 7, "reward": 0.5, "kl": 0.1}).encode())
        assert isinstance(record, Record)
        assert record.step == 7, key
    for key in reported_keys("the time"):
        (record,) = FlatJsonl().parse(json.dumps({key: 1.7e9, "reward": 0.5, "kl": 0.1}).encode())
        assert isinstance(record, Record)
        assert record.time == 1.7e9, key


def test_the_record_that_the_page_of_formats_shows_reports_the_end() -> None:
    example = re.search(r"```json\n(.*)\n```", formats.PAGE.read_text(encoding="utf-8"))
    assert example
    assert FlatJsonl().recognises(example[1].encode())

    record, total = FlatJsonl().parse(example[1].encode())

    assert isinstance(record, Record)
    assert Reading("").signals(record.values) == {"reward": 0.71}
    assert total == TotalSteps(record.step)

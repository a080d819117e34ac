"""Servers in what trainers print: found in their logs, with their run, while it goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from exporter.runs.formats.console import servers
from exporter.runs.signals.record import Servers
from tests.runs.lines import append, console, measured, verl_json
from tests.runs.served import Serve, Served

A, B, C = "10.0.0.7:41233", "10.0.0.8:40001", "[fd00::9]:42000"
VERL = f"LLMServerManager: ['{A}', '{C}']"
SLIME = "Router launched at 10.0.0.7:3512, Prometheus port: 4711"


@pytest.mark.parametrize(
    ("line", "addresses"),
    [
        (VERL, (A, C)),
        (f"AgentLoopManager: ['{A}']", (A,)),
        (f"AgentLoopManager Hybrid: ['{A}', '{C}']", (A, C)),
        (f"DynamoLLMServerManager: ['{A}']", (A,)),
        (f"(TaskRunner pid=48213) {VERL}", (A, C)),
        (f"\x1b[36m(TaskRunner pid=48213, ip=10.0.0.7)\x1b[0m {VERL}", (A, C)),
        (f"\x1b[36m(TaskRunner pid=1)\x1b[0m {VERL}\x1b[32m [repeated 2x across cluster]\x1b[0m", (A, C)),
        (f"Training Progress:   0%|  | 0/435 [00:00<?, ?it/s]{VERL}", (A, C)),
        (f"Training Progress:   0%|  | 0/435 [00:00<?, ?it/s]\r{VERL}\r", (A, C)),
        (f"{VERL[:-6]}", (A,)),
        (f"[2026-08-21 10:11:12] rollout.py:910 - {SLIME}", ("10.0.0.7:3512",)),
        (f"\x1b[36m(RolloutManager pid=7)\x1b[0m {SLIME}", ("10.0.0.7:3512",)),
        ("SGLang router launched at 10.0.0.7:3512", ("10.0.0.7:3512",)),
        ("Router launched at [fd00::9]:3512", ("[fd00::9]:3512",)),
        ("LLMServerManager: []", None),
        ("LLMServerManager: [None]", None),
        ("LLMServerManager: 4 servers", None),
        ("RewardLoopManager: ['10.0.0.7:1']", None),
        ("Reward router launched at 10.0.0.7:1", None),
        ("router launched at node-1:80", None),
        (f"no-{VERL}", None),
        ("step:12 - critic/score/mean:0.5", None),
    ],
)
def test_lines_of_verl_and_slime_report_servers_and_others_do_not(
    line: str, addresses: tuple[str, ...] | None
) -> None:
    path = "/engine_metrics" if "outer" in line else "/metrics"
    assert servers(line.encode()) == (Servers(addresses, path) if addresses else None)


def runs(served: Served) -> dict[str, str | None]:
    return {address: labels.get("run") for address, labels in served.listed().items()}


def test_servers_are_found_before_the_first_step_then_with_their_run_and_a_resume_replaces_them(
    serve: Serve, folder: Path
) -> None:
    log = folder / "ppo.log"
    append(log, "loading\n" * 3000, f"{VERL}\n", "loading\n" * 3000)
    served = serve()
    served.until(lambda: runs(served) == {A: None, C: None})
    append(log, console(1, measured(1)))
    served.until(lambda: runs(served) == {A: "ppo", C: "ppo"})
    append(log, f"LLMServerManager: ['{B}']\n", f"AgentLoopManager: ['{A}']\n")
    served.until(lambda: runs(served) == {B: "ppo", A: "ppo"})
    append(log, console(2, measured(2)))
    served.until(lambda: served.scrape().value("rl_step", run="ppo") == 2)
    assert runs(served) == {B: "ppo", A: "ppo"}


def test_a_log_that_restarts_before_its_first_step_reports_new_servers(serve: Serve, folder: Path) -> None:
    append(folder / "ppo.log", f"{VERL}\n")
    served = serve()
    served.until(lambda: runs(served) == {A: None, C: None})
    (folder / "ppo.log").write_text(f"LLMServerManager: ['{B}']\n")
    served.until(lambda: runs(served) == {B: None})


def test_the_console_of_a_run_that_its_json_lines_show_reports_its_servers(
    serve: Serve, folder: Path
) -> None:
    steps = [(step, measured(step)) for step in range(1, 12)]
    (folder / "ppo").mkdir()
    (folder / "ppo" / "console.log").write_text(f"{VERL}\n" + "".join(console(*step) for step in steps))
    (folder / "ppo" / "metrics.jsonl").write_text("".join(verl_json(*step) for step in steps))
    served = serve()
    served.until(lambda: len(served.scrape().runs()) == 1)
    (run,) = served.scrape().runs()
    assert served.scrape().value("rl_run_info", run=run, source="verl_jsonl") == 1
    served.until(lambda: runs(served) == {A: run, C: run})


def test_of_an_address_that_two_runs_had_the_one_that_goes_on_counts(serve: Serve, folder: Path) -> None:
    for name, reward in (("a", 0.1), ("b", 0.5)):
        append(folder / f"{name}.log", f"LLMServerManager: ['{A}']\n", console(1, measured(1, reward=reward)))
    append(folder / "b.log", "Final validation metrics: {}\n")
    served = serve()
    served.until(lambda: served.scrape().state("b") == "finished")
    served.until(lambda: runs(served) == {A: "a"})


def test_the_lines_of_a_log_fill_no_memory_and_what_is_refused_in_them_is_counted_once(
    serve: Serve, folder: Path, logged: list[str]
) -> None:
    lines = (f"LLMServerManager: ['10.0.{n // 250}.{n % 250}:80', '8.8.8.8:80']\n" for n in range(500))
    append(folder / "ppo.log", *lines, console(1, measured(1)))
    served = serve()
    served.until(lambda: len(served.listed()) == 100)
    time.sleep(0.2)  # some more looks
    assert served.errors() == {("address", "log"): 100}
    assert [words for words in logged if "ppo: 8.8.8.8:80 is in none" in words] == logged

"""The stack from a step to its notification, and what its rules, its backtest and its files cost."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import yaml

from benchmarks import logs
from benchmarks.load import training
from benchmarks.measure import ROOT, SHARE_SECONDS, quantiles, seconds, shares, table
from tests import real
from tests.e2e.stack import PAIRS, Stack
from tests.judge.labels import labels
from tests.rules import promtool, rendered
from tests.rules.promtool import Group, Moment

NOTIFICATIONS, HEALTHY_STEPS, SPREAD_SECONDS = 20, 12, 25.0
WARM_SECONDS = 45.0
CASES = ((1, 0), (1, 50), (10, 0), (10, 50), (100, 0), (100, 1), (100, 50), (100, 200))
"""Live runs, and overrides."""
BACKTEST_STEPS = 10_000
GENERATED = 7
EVALUATION = "sum(prometheus_rule_evaluation_duration_seconds_sum)"
"""Seconds that Prometheus has spent on evaluating rules, one after the other."""


@table("Prometheus", "Alertmanager", "tries", "p50, s", "p95, s", "max, s")
def notification() -> Iterator[tuple[object, ...]]:
    """From the bad step written to the webhook received, at default settings."""
    for versions in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            taken = _notifications(versions, Path(folder))
        yield *versions, NOTIFICATIONS, *(f"{each:.1f}" for each in quantiles(taken, 0.5, 0.95, 1))


def _notifications(versions: tuple[str, str], folder: Path) -> list[float]:
    """Each try is a run of its own; their bad steps come at random moments."""
    dice = random.Random(7)
    names = [f"try-{number}" for number in range(NOTIFICATIONS)]
    with Stack(folder, versions) as stack, ThreadPoolExecutor(NOTIFICATIONS) as pool:
        for name in names:
            _log(stack, name, [dice.gauss(0.02, 0.002) for _ in range(HEALTHY_STEPS)])
        for name in names:
            stack.wait_step(name, HEALTHY_STEPS)
        waits = [dice.uniform(0, SPREAD_SECONDS) for _ in names]
        return list(pool.map(lambda name, wait: _notify(stack, name, wait), names, waits))


def _notify(stack: Stack, name: str, wait: float) -> float:
    """KL jumps for three steps: the third completes the condition of KLExplosion."""
    time.sleep(wait)
    _log(stack, name, [3.0, 3.1, 3.2], first=HEALTHY_STEPS + 1)
    written = time.time()
    stack.wait_sent(name, {"KLExplosion"})
    return next(
        message.at - written
        for message in stack.sink.received
        for alert in message.alerts
        if alert["labels"].get("run") == name and alert["labels"]["alertname"] == "KLExplosion"
    )


def _log(stack: Stack, name: str, kls: list[float], first: int = 1) -> None:
    with (stack.runs / f"{name}.jsonl").open("ab") as file:
        for step, kl in enumerate(kls, first):
            data = {"critic/score/mean": 0.5 + 0.01 * (step % 3), "actor/kl_loss": kl}
            file.write(orjson.dumps({"step": step, "data": data}) + b"\n")


@table(
    "Prometheus", "live runs", "series a run", "overrides", "rules, kB", "rules, of a core",
    "Prometheus, of a core",
)  # fmt: skip
def rules() -> Iterator[tuple[object, ...]]:
    """What the rules cost with live runs, at the default interval, by Prometheus's own metrics.

    Beside it the share of a core that the same Prometheus uses in all, scrapes and storage included.
    """
    for version, other in PAIRS:
        for live, number in CASES:
            overrides = [_override(each) for each in range(number)]
            with (
                tempfile.TemporaryDirectory() as folder,
                Stack(Path(folder), (version, other), scrape=[], overrides=overrides) as stack,
            ):
                growing = logs.runs(stack.runs, live)
                stack.wait_until(lambda stack=stack, live=live: len(stack.query("rl_step")) == live)
                with training(growing):
                    time.sleep(WARM_SECONDS)
                    before = _evaluation(stack)
                    [whole] = shares(stack.prometheus.pid)
                    share = (_evaluation(stack) - before) / SHARE_SECONDS
                size = sum(file.stat().st_size for file in Path(folder).rglob("generated/rules/*.yml"))
                series = len(stack.query('{__name__=~"rl_.+",run="run-0"}'))
            yield (
                version, live, series, number, f"{size / 1000:.0f}",
                f"{100 * share:.1f} %", f"{100 * whole:.1f} %",
            )  # fmt: skip


def _override(number: int) -> dict[str, Any]:
    """Other limits in three blocks, each its own, for one run in a hundred."""
    own = {
        "KL": {"critical": {"above_start": 2 + number / 100}},
        "Reward": {"warning": {"stddevs": 3 + number / 1000}},
        "Stalled": {"intervals": 6 + number},
    }
    return {"runs": f"run-{number}", "alerts": own}


def _evaluation(stack: Stack) -> float:
    return float(stack.query(EVALUATION)[0]["value"][1])


@table("Prometheus", "of what", "steps", "seconds", "promtool test rules, seconds")
def backtest() -> Iterator[tuple[object, ...]]:
    """A backtest from the command line: of one run of 10,000 steps, and of all real logs.

    Beside it ``promtool test rules``, the other way to have real rules evaluated, on a tenth of the same run:
    the whole would take too long.
    """
    part = BACKTEST_STEPS // 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        path.write_bytes(b"".join(islice(logs.lines("verl_jsonl"), BACKTEST_STEPS)))
        for version in ("2.42", "3.13"):
            whole, peer = _backtest(version, [str(path)]), _promtool(version, Path(folder), part)
            yield version, "one verl run", BACKTEST_STEPS, f"{whole:.1f}", f"{peer:.1f} for {part}"
    files = [str(log.path) for log in labels()]
    yield "3.13", f"{len(files)} real logs", "all", f"{_backtest('3.13', files):.1f}", ""


def _backtest(version: str, paths: Sequence[str]) -> float:
    tool = real.prometheus(version)
    programs = {"STEPWATCH_PROMETHEUS": str(tool.server), "STEPWATCH_PROMTOOL": str(tool.tool)}
    command = [sys.executable, "-m", "stepwatch", "backtest", *paths, "--format", "json"]
    return seconds(
        lambda: subprocess.run(
            command, cwd=ROOT, env={**os.environ, **programs}, stdout=subprocess.DEVNULL, check=False
        )
    )


def _promtool(version: str, folder: Path, steps: int) -> float:
    """The time it takes to evaluate as many series and rules with promtool's unit tests."""
    dice = random.Random(3)
    silent = promtool.silently(rendered.rules("rl", {}))
    series = {
        f'rl_min_over_steps{{run="a",signal="s{number}",steps="3"}}': " ".join(
            f"{dice.random():.6f}" for _ in range(steps)
        )
        for number in range(100)
    }
    alerts = {rule["alert"]: [] for rule in silent}
    group = Group("a", series, [Moment(step + 0.5, alerts) for step in range(steps)], interval=1)
    file = promtool.write(folder, "peer", silent, [group])
    return seconds(promtool.run, real.prometheus(version).tool, file)


@table("command", f"processor time, median of {GENERATED}, s", "beside the bare import")
def generator() -> Iterator[tuple[object, ...]]:
    """``generate.py``: processor time beside a Python that only imports what any such program needs."""
    bare = _processor_seconds("-c", "import jinja2, yaml")
    yield '`python -c "import jinja2, yaml"`', f"{bare:.2f}", 1
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.yaml"
        jobs = [
            {"job": f"job-{number}", "targets": [f"127.0.0.1:{20000 + number}"]} for number in range(1000)
        ]
        limits = {"KL": {"critical": {"above_start": 2}}}
        overrides = [{"runs": f"team-{number}/*", "alerts": limits} for number in range(200)]
        large.write_text(yaml.safe_dump({"scrape": jobs, "overrides": overrides}))
        for words, config, checked in (
            ("`generate.py`, default config, no promtool or amtool", ROOT / "config.yaml", False),
            ("the same, checked by promtool and amtool", ROOT / "config.yaml", True),
            ("1,000 targets and 200 overrides, no tools", large, False),
        ):
            options = ("--config", str(config), "--out", folder)
            taken = _processor_seconds(str(ROOT / "generate.py"), *options, with_tools=checked)
            yield words, f"{taken:.2f}", f"{taken / bare:.1f}"


def _processor_seconds(*args: str, with_tools: bool = False) -> float:
    """Processor time of a Python process: wall time says more about what else the machine does."""
    environment = {**os.environ, **({} if with_tools else {"PATH": "", "HOME": "/nonexistent"})}
    # As for users: Python keeps compiled modules, and we keep compiled templates.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    used = []
    for _ in range(1 + GENERATED):
        subprocess.run([sys.executable, *args], env=environment, check=True, capture_output=True)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(usage.ru_utime + usage.ru_stime)
    return median(after - before for before, after in pairwise(used))

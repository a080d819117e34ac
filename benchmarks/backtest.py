"""A backtest from the command line: of one run of 10,000 steps, and of all real logs.

Beside it ``promtool test rules`` on a tenth of the same run: the other way to have real rules judged.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from benchmarks import logs
from tests import real
from tests.judge.labels import labels
from tests.rules import promtool, rendered
from tests.rules.promtool import Group, Moment

ROOT = Path(__file__).parents[1]
STEPS = 10_000
PART = 10
"""promtool takes longer than anyone waits for the whole run."""


def run() -> Iterator[str]:
    yield "| Prometheus | of what | steps | seconds | promtool test rules, seconds |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        path.write_bytes(b"".join(islice(logs.lines("verl_jsonl"), STEPS)))
        for version in ("2.42", "3.13"):
            whole = _backtest(version, [str(path)])
            part = _promtool(version, Path(folder))
            yield f"| {version} | one verl run | {STEPS} | {whole:.1f} | {part:.1f} for {STEPS // PART} |"
    files = [str(log.path) for log in labels()]
    yield f"| 3.13 | {len(files)} real logs | all | {_backtest('3.13', files):.1f} | |"


def _backtest(version: str, places: Sequence[str]) -> float:
    tool = real.prometheus(version)
    programs = {"STEPWATCH_PROMETHEUS": str(tool.server), "STEPWATCH_PROMTOOL": str(tool.tool)}
    command = [sys.executable, "-m", "stepwatch", "backtest", *places, "--format", "json"]
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env={**os.environ, **programs}, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def _promtool(version: str, folder: Path) -> float:
    """The time it takes to judge as many series and rules with promtool's unit tests."""
    dice, steps = random.Random(3), STEPS // PART
    rules = promtool.silently(rendered.rules("rl", {}))
    series = {
        f'rl_min_over_steps{{run="a",signal="s{number}",steps="3"}}': " ".join(
            f"{dice.random():.6f}" for _ in range(steps)
        )
        for number in range(100)
    }
    alerts = {rule["alert"]: [] for rule in rules}
    group = Group("a", series, [Moment(step + 0.5, alerts) for step in range(steps)], interval=1)
    file = promtool.write(folder, "peer", rules, [group])
    began = time.perf_counter()
    promtool.run(real.prometheus(version).tool, file)
    return time.perf_counter() - began

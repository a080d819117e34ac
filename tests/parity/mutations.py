"""``python -m tests.parity.mutations [WORD ...]``: changes to the product, each of which parity must notice.

Each is made in a copy of the checkout. The surface that should notice it is tried first, then all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
NOT_COPIED = (".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__")
TEST = "tests/parity/test_parity.py"


class Mutation(NamedTuple):
    """A change: what it is, where, from which text to which, and the surface that should notice it."""

    what: str
    file: str
    old: str
    new: str
    surface: str


MUTATIONS = (
    Mutation(
        "a statistic: spread is a third less",
        "exporter/runs/stats/statistics.py",
        "PER_DIFFERENCE = math.sqrt(math.pi) / 2",
        "PER_DIFFERENCE = math.sqrt(math.pi) / 3",
        "pages-own",
    ),
    Mutation(
        "a window: a start is the mean of 6 values",
        "exporter/runs/stats/statistics.py",
        "START_VALUES = 5",
        "START_VALUES = 6",
        "pages-own",
    ),
    Mutation(
        "a limit: KLHigh from 0.6",
        "stepwatch/alerts/kl.yaml",
        "default: 0.5\n          why: Nats per token above the start. Healthy",
        "default: 0.6\n          why: Nats per token above the start. Healthy",
        "alerts-made",
    ),
    Mutation(
        "a limit of GPUs: hot from 4 degrees below the throttle",
        "stepwatch/alerts/gpu_load.yaml",
        "default: 5\n      why: Degrees Celsius left.",
        "default: 4\n      why: Degrees Celsius left.",
        "alerts-machines",
    ),
    Mutation(
        "a hold: GPULost is pending for a minute",
        "stepwatch/alerts/gpu_health.yaml",
        'default: 30s, why: "The driver may answer slowly once;',
        'default: 1m, why: "The driver may answer slowly once;',
        "rules-alerts",
    ),
    Mutation(
        "a severity: KLExplosion is a warning",
        "stepwatch/alerts/kl.yaml",
        "- severity: critical\n      name: KLExplosion",
        "- severity: warning\n      name: KLExplosion",
        "rules-alerts",
    ),
    Mutation(
        "a route: warnings reach no one",
        "stepwatch/rules/routing.py",
        '_SEVERITIES = ("critical", "warning")',
        '_SEVERITIES = ("critical",)',
        "routes",
    ),
    Mutation(
        "a duration: groups wait as long as they are apart",
        "alertmanager/templates/alertmanager.yml.j2",
        "group_wait: <%= config.notify.warning.group_wait %>",
        "group_wait: <%= config.notify.warning.group_interval %>",
        "routes",
    ),
    Mutation(
        "a key: verl's KL in the reward",
        "exporter/runs/signals/trainers/verl.yaml",
        "actor/reward_kl_penalty, critic/kl]",
        "critic/kl]",
        "pages-trainers",
    ),
    Mutation(
        "a scale: milliseconds are seconds",
        "exporter/runs/signals/trainers/verl.yaml",
        "{key: timing_per_token_ms/gen, scale: ms,",
        "{key: timing_per_token_ms/gen,",
        "pages-own",
    ),
    Mutation(
        "a format's regex: steps of one digit",
        "exporter/runs/formats/line_consoles.py",
        r"step:(\d{1,15}) - ",
        r"step:(\d{1,1}) - ",
        "pages-own",
    ),
    Mutation(
        "a label: where a run is read from",
        "exporter/runs/serve/metrics.py",
        '"source": run.source}',
        '"format": run.source}',
        "pages-own",
    ),
    Mutation(
        "a metric's name: the temperature",
        "exporter/gpu/table.py",
        "gauge gpu_temperature_celsius ",
        "gauge gpu_memory_temperature_celsius ",
        "gpus-driver",
    ),
    Mutation(
        "a GPU's unit: kilohertz",
        "exporter/gpu/table.py",
        "GetClockInfo({0,1,2,3}) *1e6\ngauge",
        "GetClockInfo({0,1,2,3}) *1e3\ngauge",
        "gpus-driver",
    ),
    Mutation(
        "an exit code: stale files",
        "stepwatch/generate.py",
        "DONE, STALE, REFUSED = 0, 1, 2",
        "DONE, STALE, REFUSED = 0, 3, 2",
        "callers-generate",
    ),
    Mutation(
        "an exit code: a trainer that fails",
        "stepwatch/launch/wrapper.py",
        "return os.WEXITSTATUS(status)",
        "return 0",
        "callers-run",
    ),
    Mutation(
        "the atomicity of generate: files are replaced before they are checked",
        "stepwatch/render/generator.py",
        "        try:\n            checks = check.check(",
        "        output.replace(out, staging, changes)\n        try:\n            checks = check.check(",
        "callers-generate",
    ),
    Mutation(
        "a key of the backtest's JSON",
        "stepwatch/backtest/report.py",
        '"tried": list(self.tried)',
        '"settings": list(self.tried)',
        "callers-backtest",
    ),
    Mutation(
        "a scrape target: the list of rollout servers",
        "prometheus/templates/prometheus.yml.j2",
        "/sd/rollout",
        "/sd/rollouts",
        "rules-jobs",
    ),
    Mutation(
        "a source of targets: Ray's",
        "exporter/runs/targets/files.py",
        'Kind("ray_file", RAY,',
        'Kind("ray_file", ROLLOUT,',
        "targets",
    ),
    Mutation(
        "a dashboard's query: the lowest reward",
        "grafana/templates/dashboards/tutorial.yaml.j2",
        '"max(%s)", "verl_average_reward"',
        '"min(%s)", "verl_average_reward"',
        "charts-tutorial",
    ),
    Mutation(
        "the demo: its KL explodes later",
        "demo/scenario.py",
        "_logistic(step - 270, 9)",
        "_logistic(step - 370, 9)",
        "alerts-demo",
    ),
)


def main(words: list[str]) -> int:
    """Make each change whose description has one of the words, or every one; print who notices it."""
    chosen = [each for each in MUTATIONS if not words or any(word in each.what for word in words)]
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="stepwatch-mutations-") as folder:
        copy = Path(folder) / "stepwatch"
        shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
        (copy / ".venv").symlink_to((CHECKOUT / ".venv").resolve())
        for mutation in chosen:
            begun = time.monotonic()
            noticed = _noticed(copy, mutation)
            unnoticed += noticed.startswith("NOT")
            print(f"{mutation.what:72} {noticed} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(chosen)} changes, {unnoticed} not noticed.")
    return 1 if unnoticed else 0


def _noticed(copy: Path, mutation: Mutation) -> str:
    """Who notices a change, or that nothing does."""
    file = copy / mutation.file
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if mutation.old not in before:
        return f"NOT MADE: {mutation.file} does not hold {mutation.old!r}. Fix: choose another place."
    file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        for chosen in (f"{TEST}::test_the_product_shows_what_was_frozen[{mutation.surface}]", TEST):
            if failed := _failed(copy, chosen):
                return failed
    finally:
        file.write_text(before, encoding="utf-8")
    return "NOT NOTICED"


def _failed(copy: Path, tests: str) -> str:
    """The first test that fails, of these."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rf", "--tb=line", tests],
        cwd=copy,
        env={**os.environ, "STEPWATCH_TEST_RUNS": "", "CI": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{tests}: {done.stdout}{done.stderr}")
    found = re.search(r"^FAILED .*\[([\w-]+)\]", done.stdout, re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

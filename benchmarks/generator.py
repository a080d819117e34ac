"""``generate.py``: processor time beside a Python that only imports what any such program needs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import yaml

ROOT = Path(__file__).parents[1]
TRIES = 7


def run() -> Iterator[str]:
    bare = _seconds([sys.executable, "-c", "import jinja2, yaml"])
    yield "| command | processor time, median of 7, s | beside the bare import |"
    yield "|---|---|---|"
    yield f'| `python -c "import jinja2, yaml"` | {bare:.2f} | 1 |'
    with tempfile.TemporaryDirectory() as folder:
        for words, config, checked in _cases(Path(folder)):
            command = [sys.executable, ROOT / "generate.py", "--config", config, "--out", folder]
            taken = _seconds(command, with_tools=checked)
            yield f"| {words} | {taken:.2f} | {taken / bare:.1f} |"


def _cases(folder: Path) -> Iterator[tuple[str, Path, bool]]:
    yield "`generate.py`, default config, no promtool or amtool", ROOT / "config.yaml", False
    yield "the same, checked by promtool and amtool", ROOT / "config.yaml", True
    yield "1,000 targets and 200 overrides, no tools", _large(folder / "large.yaml"), False


def _large(path: Path) -> Path:
    jobs = [{"job": f"job-{number}", "targets": [f"127.0.0.1:{20000 + number}"]} for number in range(1000)]
    limits = {"KL": {"critical": {"above_start": 2}}}
    overrides = [{"runs": f"team-{number}/*", "alerts": limits} for number in range(200)]
    path.write_text(yaml.safe_dump({"scrape": jobs, "overrides": overrides}))
    return path


def _seconds(command: list[object], *, with_tools: bool = False) -> float:
    nowhere = {"PATH": "", "HOME": "/nonexistent"}
    environment = {**os.environ, **({} if with_tools else nowhere)}
    # As for users: Python keeps compiled modules, and we keep compiled templates.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [str(word) for word in command]
    _once(words, environment)
    return median(_once(words, environment) for _ in range(TRIES))


def _once(command: list[str], environment: dict[str, str]) -> float:
    """Processor time: that of a clock says more about what else the machine does."""
    before = _used()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return _used() - before


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

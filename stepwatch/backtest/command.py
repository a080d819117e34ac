"""``python -m stepwatch backtest``: which alerts old runs would have raised."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import orjson

from stepwatch.backtest.progress import Progress
from stepwatch.backtest.results import Results
from stepwatch.backtest.table import lines
from stepwatch.backtest.work import prepared
from stepwatch.config.changes import load_changed
from stepwatch.tables import Say

FAILING = {"warning": ("warning", "critical"), "critical": ("critical",)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command takes besides ``--config``."""
    parser.add_argument("places", nargs="+", metavar="PATH", help="logs, folders of logs, or globs")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--fail-on", choices=FAILING, help="exit with 1 if such an alert would have fired")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="logs read at once")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a value to try")


def backtest(options: argparse.Namespace, config: Path, say: Say) -> int:
    """Judge old runs and tell what came of it.

    Returns:
        0; 1 if an alert of ``--fail-on`` would have fired; 2 if a file could not be judged.
    """
    progress = Progress()
    with prepared(options.places, load_changed(config, options.set), options.jobs, progress) as loaded:
        results = loaded.results(progress)
    _tell(results, options.format, say)
    if results.failed:
        return 2
    return int(bool(options.fail_on) and results.fired(*FAILING[options.fail_on]))


def _tell(results: Results, form: str, say: Say) -> None:
    if form == "json":
        say(orjson.dumps(results.document(), option=orjson.OPT_INDENT_2).decode())
        return
    for line in lines(results):
        say(line)

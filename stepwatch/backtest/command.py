"""``python -m stepwatch backtest``: which alerts old runs would have raised."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwatch.backtest.page import page
from stepwatch.backtest.panels import Drawn
from stepwatch.backtest.report import DOCUMENT, PAGE, Report, make, write
from stepwatch.backtest.server import Progress
from stepwatch.backtest.table import lines
from stepwatch.backtest.work import prepared
from stepwatch.config import Config
from stepwatch.config.changes import load_changed
from stepwatch.system.terminal import Say

FAILING = {"warning": ("warning", "critical"), "critical": ("critical",)}


def backtest(options: argparse.Namespace, config: Path, say: Say) -> int:
    """Judge old runs and tell what came of it; ``options`` are those of the command line.

    Returns:
        0; 1 if an alert of ``--fail-on`` would have fired; 2 if a file could not be judged, or there is
        no run.
    """
    settings = load_changed(config, options.set)
    drawn = _drawn(options, settings)
    metrics = drawn.metrics if drawn else frozenset[str]()
    progress = Progress()
    with prepared(options.places, settings, options.jobs, progress, metrics) as loaded:
        results = loaded.results(progress)
        charts = loaded.charts(results, drawn, progress) if drawn else {}
        suggestions = loaded.suggestions(progress) if options.suggest else None
    report = Report(results, tuple(options.set), suggestions)
    _tell(options, report, page(report, charts, settings) if drawn else "", say)
    if results.failed or not results.runs:
        return 2
    return int(bool(options.fail_on) and results.fired(*FAILING[options.fail_on]))


def _drawn(options: argparse.Namespace, settings: Config) -> Drawn | None:
    """The panels of the page, if there is to be one; a folder that it cannot go to is reported first."""
    if options.report:
        make(options.report)
    return Drawn(settings) if options.report or options.format == "html" else None


def _tell(options: argparse.Namespace, report: Report, html: str, say: Say) -> None:
    if options.report:
        write(options.report, {PAGE: html, DOCUMENT: f"{report.json()}\n"})
    if options.format == "table":
        for line in lines(report):
            say(line)
    else:
        say(html if options.format == "html" else report.json())

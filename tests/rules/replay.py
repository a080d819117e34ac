"""Real logs, record by record, through the exporter's own statistics: one sample of each series every 5 s."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from exporter.runs import signals
from exporter.runs.exposition import RunText
from exporter.runs.record import Event, Record
from exporter.runs.run import Clock, Options, Run
from exporter.runs.sources.verl_console import VerlConsole
from exporter.runs.views import View
from tests.rules.promtool import INTERVAL
from tests.rules.rendered import CHECKOUT

REAL_RUNS = Path(os.environ.get("STEPWATCH_TEST_RUNS", CHECKOUT.parent / "shared" / "runs"))

START = 1_700_006_400
"""When every run is taken to begin: a full two hours, so that the samples fill few blocks."""

NO_HOLD = 1.0
"""Shorter than the time between two records: each is seen as it is."""


def events(log: Path) -> Iterator[Event]:
    """What a log of verl says: its console output, or its metrics as a table."""
    if log.suffix == ".csv":
        yield from _rows(log)
    else:
        source = VerlConsole()
        for line in log.read_bytes().split(b"\n"):
            yield from source.read(line)


def _rows(log: Path) -> Iterator[Record]:
    """Records of a table whose columns are verl's keys with `_` for `/`."""
    keys = {key.replace("/", "_"): key for key in _verl_keys()}
    with log.open(newline="") as table:
        for row in csv.DictReader(table):
            values = {keys[column]: value for column, value in row.items() if column in keys and value}
            yield Record(int(float(row["step"])), values)


def _verl_keys() -> Iterator[str]:
    for _, keys in signals.table("verl"):
        for key in keys:
            yield key.name
            yield from key.per


def write(name: str, log: Path, out: TextIO) -> int:
    """Write the run's samples as OpenMetrics; returns the number of its records."""
    run, text, records = Run("verl_console", "verl", Options(hold=NO_HOLD)), RunText(), 0
    for event in events(log):
        now = INTERVAL * (records + 1)
        run.take(event, Clock(START + now, now, live=True))
        if isinstance(event, Record):
            records += 1
            view = View(name, run, "running", None)
            for lines in text.chunks(view, now).values():
                out.writelines(f"{line} {START + now}\n" for line in lines.splitlines())
    return records

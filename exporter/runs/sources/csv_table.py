"""Tables: a header, then a row for each step; as loops write them and as W&B exports them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import NamedTuple

from exporter.runs.signals import measurements
from exporter.runs.signals.axes import AXES, sensible_seconds, step, step_key, time_key
from exporter.runs.signals.keys.key import normal
from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Event, Record
from exporter.runs.sources.whole import Whole

_SEPARATORS = ",;\t"
_LONGEST_HEADER = 1024 * 1024
_MOST_COLUMNS = 5000
_BOM = "\ufeff"
_UNDECODED = "\ufffd"
_WANDB_NAME = "Name: "
_WANDB_RANGE = ("__MIN", "__MAX")
"""Ends of the columns that W&B adds to each column of its exports."""


class Column(NamedTuple):
    """Where a key of a run stands in each row."""

    place: int
    run: str
    key: str


class Header:
    """The columns of a table."""

    def __init__(self, cells: list[str], separator: str) -> None:
        self.separator = separator
        self.width = len(cells)
        columns = _columns(cells)
        keys = [column.key for column in columns]
        self.step_name = step_key(keys)
        stamp = time_key(keys)
        self.step = next((column.place for column in columns if column.key == self.step_name), None)
        self.time = next((column.place for column in columns if column.key == stamp), None)
        self.values = [column for column in columns if normal(column.key) not in AXES]

    def is_of_a_run(self) -> bool:
        """Does it name measurements: one beside the step, or two in single words?"""
        keys = tuple(dict.fromkeys(column.key for column in self.values))
        # a sentence may list measurements as well
        if self.step_name is None and any(" " in key for key in keys):
            return False
        return measurements(keys) >= (2 if self.step_name is None else 1)


class CsvTable(Whole):
    """Comma, semicolon or tab between cells. A blank cell is missing, never 0.

    Where the columns belong to several runs, each row holds a record of every run that has cells in it.
    """

    name = "csv"
    framework = ""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._rows = 0

    @staticmethod
    def recognises(line: bytes) -> bool:
        return _header(line) is not None

    def read(self, line: bytes) -> Iterator[Event]:
        header = _header(line) if self._header is None or not line[:1].isdigit() else None
        if header is not None:
            self._header = header
        elif self._header is not None and line.strip():
            yield from self._row(self._header, line)

    def _row(self, header: Header, line: bytes) -> Iterator[Event]:
        cells = _cells(_text(line), header.separator)
        if len(cells) != header.width:
            raise ValueError("not as many cells as columns")
        self._rows += 1
        runs = _values(header, cells)
        if any(runs.values()):
            at = self._rows if header.step is None else step(cells[header.step])
            time = None if header.time is None else sensible_seconds(cells[header.time])
            for run, values in runs.items():
                yield Record(at, values, time, run=run)


def _header(line: bytes) -> Header | None:
    """The header that the line is, if it is one."""
    if len(line) > _LONGEST_HEADER or line[:1] in b"{[" or not any(mark in line for mark in b",;\t"):
        return None
    text = _text(line).removeprefix(_BOM)
    if not text.replace("\t", " ").isprintable() or _UNDECODED in text:
        return None
    separator = max(_SEPARATORS, key=text.count)
    try:
        cells = [cell.strip() for cell in _cells(text, separator)]
    except ValueError:
        return None
    if not 2 <= len(cells) <= _MOST_COLUMNS or any(number(cell) is not None for cell in cells):
        return None
    header = Header(cells, separator)
    return header if header.is_of_a_run() else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _cells(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator), [])
    except csv.Error as error:
        raise ValueError("no row of a table") from error


def _columns(cells: list[str]) -> list[Column]:
    names = set(cells)
    shown = [(place, cell) for place, cell in enumerate(cells) if cell and not _is_range(cell, names)]
    return [Column(place, *_run_and_key(cell, names)) for place, cell in shown]


def _is_range(cell: str, names: set[str]) -> bool:
    return cell.endswith(_WANDB_RANGE) and cell[: -len("__MIN")] in names


def _run_and_key(cell: str, names: set[str]) -> tuple[str, str]:
    """W&B's ``Name: <run> - <key>``; elsewhere the column is the key of the only run."""
    if not cell.startswith(_WANDB_NAME) and f"{cell}__MIN" not in names:
        return "", cell
    run, _, key = cell.removeprefix(_WANDB_NAME).rpartition(" - ")
    return run, key


def _values(header: Header, cells: list[str]) -> dict[str, dict[str, str]]:
    """Run -> key -> cell, of cells that are not blank."""
    runs: dict[str, dict[str, str]] = {}
    for place, run, key in header.values:
        cell = cells[place].strip()
        if cell:
            runs.setdefault(run, {})[key] = cell.replace(",", ".") if header.separator == ";" else cell
    return runs

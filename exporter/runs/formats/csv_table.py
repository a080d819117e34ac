"""Tables: a header, then a row for each step; as loops write them and as W&B exports them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from exporter.runs.formats.base import Source
from exporter.runs.signals import NONE_MAPPED, Mapped, measurements
from exporter.runs.signals.key import normal
from exporter.runs.signals.record import (
    AXES,
    Event,
    Record,
    number,
    sensible_seconds,
    step,
    step_key,
    time_key,
)

_SEPARATORS = ",;\t"
_LONGEST_HEADER = 1024 * 1024
_MOST_COLUMNS = 5000
_BOM = "\ufeff"
_UNDECODED = "\ufffd"
_WANDB_NAME = "Name: "
_WANDB_RANGE = ("__MIN", "__MAX")  # ends of the columns that W&B adds to each column of its exports


class Column(NamedTuple):
    """The column of a key of a run."""

    place: int
    run: str
    key: str


class Header(NamedTuple):
    """The columns of a table; ``step`` and ``time`` are the places of these."""

    separator: str
    width: int
    step: int | None
    time: int | None
    values: list[Column]


class CsvTable(Source):
    """Comma, semicolon or tab between cells; blank is missing. A row has a record of each run with cells."""

    name = "csv"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._header: Header | None = None
        self._rows = 0

    def recognises(self, line: bytes) -> bool:
        return _header(line, self._mapped) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        found = _header(line, self._mapped) if self._header is None or not line[:1].isdigit() else None
        if found is not None:
            self._header = found
            return
        header = self._header
        if header is None or not line.strip():
            return
        cells = _cells(line.decode("utf-8", "replace").rstrip("\r\n"), header.separator)
        if len(cells) != header.width:
            raise ValueError("not as many cells as columns")
        self._rows += 1
        runs: dict[str, dict[str, str]] = {}
        for place, run, key in header.values:
            cell = cells[place].strip()
            if cell:
                runs.setdefault(run, {})[key] = cell.replace(",", ".") if header.separator == ";" else cell
        if runs:
            at = self._rows if header.step is None else step(cells[header.step])
            time = None if header.time is None else sensible_seconds(cells[header.time])
            for run, values in runs.items():
                yield Record(at, values, time, run=run)


def _header(line: bytes, mapped: Mapped) -> Header | None:
    """The header that the line is, if it is one: it names a measurement beside the step, or two."""
    if len(line) > _LONGEST_HEADER or line[:1] in b"{[" or not any(mark in line for mark in b",;\t"):
        return None
    text = line.decode("utf-8", "replace").rstrip("\r\n").removeprefix(_BOM)
    if not text.replace("\t", " ").isprintable() or _UNDECODED in text:
        return None
    separator = max(_SEPARATORS, key=text.count)
    cells = []
    with suppress(ValueError):
        cells = [cell.strip() for cell in _cells(text, separator)]
    if not 2 <= len(cells) <= _MOST_COLUMNS or any(number(cell) is not None for cell in cells):
        return None
    columns = _columns(cells)
    names = [column.key for column in columns]
    step_name, time_name = step_key(names), time_key(names)
    values = [column for column in columns if normal(column.key) not in AXES]
    keys = tuple(dict.fromkeys(column.key for column in values))
    if step_name is None and any(" " in key for key in keys):
        return None  # a sentence may list measurements as well
    if measurements(keys, mapped) < (2 if step_name is None else 1):
        return None
    places: dict[str | None, int] = {column.key: column.place for column in reversed(columns)}
    return Header(separator, len(cells), places.get(step_name), places.get(time_name), values)


def _cells(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator), [])
    except csv.Error as error:
        raise ValueError("no row of a table") from error


def _columns(cells: list[str]) -> list[Column]:
    """W&B's are ``Name: <run> - <key>``; elsewhere the column is the key of the only run."""
    names = set(cells)
    columns = []
    for place, cell in enumerate(cells):
        if not cell or (cell.endswith(_WANDB_RANGE) and cell[: -len("__MIN")] in names):
            continue
        run, key = "", cell
        if cell.startswith(_WANDB_NAME) or f"{cell}__MIN" in names:
            run, _, key = cell.removeprefix(_WANDB_NAME).rpartition(" - ")
        columns.append(Column(place, run, key))
    return columns

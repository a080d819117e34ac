"""Trackio's local database: a row of the table ``metrics`` for each call of ``trackio.log``.

Rows hold the project's runs by name, each with its step and a JSON object of values, in which NaN and Inf
are texts. Source: ``trackio/sqlite_storage.py`` and ``utils.py`` of 0.43.0. Rows come as the lines that
``readers.database`` makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.runs.signals import measurements
from exporter.runs.signals.axes import seconds
from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Event, Record, TotalSteps, is_step
from exporter.runs.sources.flat import flattened
from exporter.runs.sources.json_lines import parse
from exporter.runs.sources.whole import Whole

_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_OF_TRANSFORMERS = "train/global_step"
"""transformers' callback logs without a step: Trackio counts its calls then."""

_SHORT = 8
"""Characters of an id that tell two runs of one name apart."""


class Trackio(Whole):
    """The runs of one project. A second run of the same name is distinguished by the start of its id."""

    name = "trackio"
    framework = ""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    @staticmethod
    def recognises(line: bytes) -> bool:
        match parse(line):
            case {"run": str(), "step": step, "metrics": dict(metrics)} if is_step(step):
                return measurements(tuple(_measured(metrics))) > 0
        return False

    def read(self, line: bytes) -> Iterator[Event]:
        match row := parse(line):
            case {"run": str(run), "id": str(code), "step": step, "metrics": dict(metrics)} if is_step(step):
                yield from _record(self._named(run, code), step, metrics, row)
            case {"run": str(run), "id": str(code), "config": {"max_steps": total}} if (
                is_step(total) and total
            ):
                yield TotalSteps(total, run=self._named(run, code))
            case {"config": _}:
                pass
            case _:
                raise ValueError("no row of metrics")

    def _named(self, run: str, code: str) -> str:
        return run if self._ids.setdefault(run, code) == code else f"{run} {code[:_SHORT]}"


def _record(run: str, step: int, metrics: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[Record]:
    values = _measured(metrics)
    logged = values.pop(_OF_TRANSFORMERS, None)
    if values:
        yield Record(logged if is_step(logged) else step, values, seconds(row.get("time")), run=run)


def _measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, and the texts of those that are not finite."""
    return {
        key: value
        for key, value in flattened(metrics).items()
        if (type(value) in (int, float) and number(value) is not None)
        or (type(value) is str and value in _NOT_FINITE)
    }

"""Flat JSON lines: ``{"step":12,"reward/mean":0.5,...}``, of home-made loops, Tinker, SkyRL and ms-swift."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.runs.signals.record import Event
from exporter.runs.sources.flat import FlatRecords, is_record, is_sample
from exporter.runs.sources.json_lines import parse
from exporter.runs.sources.whole import Whole


class FlatJsonl(Whole):
    """Every line holds what was logged at a step, under keys that tell the framework."""

    name = "flat_jsonl"
    framework = ""

    def __init__(self) -> None:
        self._records = FlatRecords()

    @staticmethod
    def recognises(line: bytes) -> bool:
        return line.startswith(b"{") and is_record(parse(line))

    def read(self, line: bytes) -> Iterator[Event]:
        if not line.strip():
            return
        match parse(line):
            case dict(logged):
                if not is_sample(logged):
                    yield from self._records.events(logged)
            case _:
                raise ValueError("no record")

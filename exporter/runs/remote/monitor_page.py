"""The page of a trainer that rl-insight's client serves: verl's numbers, one gauge for each."""

from __future__ import annotations

import time
from dataclasses import replace

from exporter.runs.remote.page import Found, Page
from exporter.runs.signals.record import Event, Record

SETTLE_SECONDS = 0.3
LOOKS = 5
"""The gauges of a step are set one by one, and the step's own number is not the last of them."""

VALIDATION = ("val_", "val-")
"""How verl's keys of a validation begin; they stay on the page until the next one, steps later."""


class MonitorPage(Page):
    """Read again until it stands still whenever it changed, so that no step is half another's.

    What was validated counts once. A page with nothing but that reports no step: verl validates
    before it trains, and after a resume that is no first step.
    """

    source = "rl_insight"

    def __init__(self, address: str, timeout: float = 10) -> None:
        super().__init__(f"http://{address}/metrics", timeout=timeout)
        self._seen_last: dict[str, dict[str, str]] = {}
        self._validated: dict[str, dict[str, float]] = {}

    def poll(self) -> list[Event]:
        events = [self._once(event) if isinstance(event, Record) else event for event in super().poll()]
        self._validated = {run: values for run, values in self._validated.items() if run in self._seen}
        return events

    def _read(self) -> dict[str, Found]:
        runs = super()._read()
        for _ in range(LOOKS):
            now = {run: found.fingerprint() for run, found in runs.items()}
            if now == self._seen_last:
                break
            self._seen_last = now
            time.sleep(SETTLE_SECONDS)
            runs = super()._read()
        return {run: found for run, found in runs.items() if not all(map(_is_validation, found.values))}

    def _once(self, record: Record) -> Record:
        """The record without what was validated for an earlier one."""
        found = {key: value for key, value in record.values.items() if _is_validation(key)}
        before = self._validated.get(record.run, {})
        self._validated[record.run] = found
        old = {key for key, value in found.items() if before.get(key) == value}
        return replace(record, values={key: record.values[key] for key in record.values.keys() - old})


def _is_validation(key: str) -> bool:
    return key.startswith(VALIDATION)

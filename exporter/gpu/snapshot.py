"""What a worker sends: one line of JSON a cycle, with the exposition text of its GPUs inside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from exporter.gpu.backend import Card, Event, Reading
from exporter.gpu.dcgm import Twins
from exporter.gpu.families import GPU_FAMILIES
from exporter.gpu.report import Report
from exporter.http.exposition import escape, header, number, series

Chunks = dict[str, list[str]]
"""Lines by metric name."""

MOST_SERIES = 4096
"""So many names with their labels are kept as text: next time only the value is new."""


def message(
    nvml: str,
    system: Iterable[Reading] = (),
    reports: Iterable[tuple[Card, Report]] = (),
    events: Iterable[Event] = (),
    twins: Twins | None = None,
) -> bytes:
    """The line to send. ``nvml`` is the reason of ``gpu_exporter_nvml_up``; ``twins`` tell it once more."""
    known = list(reports)
    plain = {
        "nvml": nvml,
        "cards": [(card.number, card.uuid, report.reason) for card, report in known],
        "events": list(events),
        "text": text(system, known) + (twins.text(known) if twins else ""),
        "dcgm": twins.labels if twins else {},
    }
    return json.dumps(plain).encode() + b"\n"


def text(system: Iterable[Reading], reports: Iterable[tuple[Card, Report]]) -> str:
    """The exposition text of what was read."""
    chunks: Chunks = {family.name: [] for family in GPU_FAMILIES}
    errors: Counter[tuple[str, str]] = Counter()
    seconds: dict[str, float] = {}
    for card, report in reports:
        _add_card(chunks, card, report)
        errors.update(report.errors)
        seconds.update({tier: max(took, seconds.get(tier, 0)) for tier, took in report.seconds.items()})
    own = [Reading("gpu_exporter_collect_errors_total", n, _named(key)) for key, n in errors.items()]
    own += [Reading("gpu_exporter_collect_duration_seconds", s, {"tier": t}) for t, s in seconds.items()]
    for reading in (*system, *own):
        _add(chunks, "", reading)
    return "".join(
        header(family) + "".join(chunks[family.name]) for family in GPU_FAMILIES if chunks[family.name]
    )


def _named(key: tuple[str, str]) -> dict[str, str]:
    return {"call": key[0], "code": key[1]}


def _add_card(chunks: Chunks, card: Card, report: Report) -> None:
    label = f'gpu="{card.number}",uuid="{escape(card.uuid)}"'
    for reading in report.readings:
        _add(chunks, label, reading)
    for call, reason in report.missing.items():
        _add(chunks, label, Reading("gpu_exporter_unsupported", 1, {"call": call, "reason": reason}))


def _add(chunks: Chunks, label: str, reading: Reading) -> None:
    named = _series(reading.metric, label, tuple(reading.labels.items()))
    chunks[reading.metric].append(f"{named} {number(reading.value)}\n")


@lru_cache(MOST_SERIES)
def _series(metric: str, label: str, labels: tuple[tuple[str, str], ...]) -> str:
    return series(metric, label, dict(labels))

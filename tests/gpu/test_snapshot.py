"""What a worker sends: text that Prometheus reads back as it was meant, whatever names hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu import worker
from exporter.gpu.backend import Event, Reading, Report
from exporter.gpu.families import FRONT_FAMILIES, GPU_FAMILIES
from tests.runs.scrape import Scrape


class Card(NamedTuple):
    number: int
    uuid: str


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
READINGS = st.builds(
    Reading,
    st.sampled_from([family.name for family in GPU_FAMILIES if "exporter" not in family.name]),
    st.floats(allow_nan=False),
    st.dictionaries(st.sampled_from(["name", "sensor", "limit"]), WORDS),
)
REPORTS = st.builds(
    Report,
    at=st.just(0.0),
    reason=WORDS,
    readings=st.lists(READINGS, unique_by=lambda each: (each.metric, str(each.labels))).map(tuple),
    missing=st.dictionaries(WORDS, WORDS, max_size=3),
    errors=st.dictionaries(st.tuples(WORDS, WORDS), st.integers(1, 9), max_size=3),
    seconds=st.just({}),
)


EVENTS = st.builds(Event, WORDS, st.integers(), st.floats(0, 9))


@pytest.mark.slow
@settings(deadline=None)
@given(st.dictionaries(WORDS, REPORTS, max_size=3), st.lists(EVENTS))
def test_what_is_sent_is_what_was_read(reports: dict[str, Report], events: list[Event]) -> None:
    cards = [(Card(number, uuid), report) for number, (uuid, report) in enumerate(reports.items())]
    line = worker.message("ok", (), cards, events)  # type: ignore[arg-type]
    reported = json.loads(line)
    samples = Scrape(reported["text"].encode()).samples
    wanted: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    errors: Counter[tuple[str, str]] = Counter()
    for card, report in cards:
        own = {"gpu": str(card.number), "uuid": card.uuid}
        for metric, value, labels in report.readings:
            wanted[metric, frozenset({**own, **labels}.items())] = value
        for call, reason in report.missing.items():
            listed = {**own, "call": call, "reason": reason}
            wanted["gpu_exporter_unsupported", frozenset(listed.items())] = 1
        errors.update(report.errors)
    for (call, code), count in errors.items():
        key = frozenset({"call": call, "code": code}.items())
        wanted["gpu_exporter_collect_errors_total", key] = count

    assert samples == wanted
    assert line.count(b"\n") == 1
    assert reported["cards"] == [[card.number, card.uuid, report.reason] for card, report in cards]
    assert reported["events"] == [list(event) for event in events]


def test_the_longest_time_of_each_tier_is_shown() -> None:
    reports = [Report(0.0, "ok", seconds={"fast": took, "slow": 1 - took}) for took in (0.25, 0.75)]
    text = worker.text((), [(Card(number, ""), report) for number, report in enumerate(reports)])  # type: ignore[misc]

    assert Scrape(text.encode()).value("gpu_exporter_collect_duration_seconds", tier="fast") == 0.75
    assert Scrape(text.encode()).value("gpu_exporter_collect_duration_seconds", tier="slow") == 0.75


def test_worker_and_front_write_no_metric_twice() -> None:
    names = [family.name for family in (*GPU_FAMILIES, *FRONT_FAMILIES)]

    assert len(names) == len(set(names))

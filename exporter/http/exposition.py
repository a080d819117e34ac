"""The text that Prometheus reads. Written here: a client library takes twelve times as long for 100 runs.

It also weighs more than everything else that the GPU exporter has in memory. The process metrics of such a
library are here, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


_NO_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
"""Go's spelling."""


class Family(NamedTuple):
    """Name, type and help text of one metric."""

    name: str
    type: str
    help: str


Metric = tuple[Family, list[Sample]]
"""A metric with its samples."""


def own(name: str, text: str, samples: float | list[Sample]) -> Metric:
    """Return a metric of a program of ours, ``stepwatch_`` before its name; a number is its only sample."""
    kind = "counter" if name.endswith("_total") else "gauge"
    return Family(f"stepwatch_{name}", kind, text), samples if isinstance(samples, list) else [({}, samples)]


def by_label(label: str, values: Mapping[str, float]) -> list[Sample]:
    """Return a sample for each value of a label."""
    return [({label: each}, value) for each, value in values.items()]


def page(metrics: Iterable[Metric]) -> str:
    """Return the text of some metrics."""
    return "".join(header(family) + lines(family.name, "", samples) for family, samples in metrics)


def header(family: Family) -> str:
    """The two lines above a metric's samples."""
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n"


def lines(name: str, label: str, samples: Iterable[Sample]) -> str:
    """A line for each sample; ``label``, already escaped, precedes its own labels."""
    return "".join(f"{series(name, label, labels)} {number(value)}\n" for labels, value in samples)


def series(name: str, label: str, labels: Mapping[str, str]) -> str:
    """The text before a value."""
    inside = ",".join(filter(None, (label, joined(labels))))
    return f"{name}{{{inside}}}" if inside else name


def joined(labels: Mapping[str, str]) -> str:
    """Labels in the form that ``lines`` takes as a prefix."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())


def escape(value: str) -> str:
    """An escaped label value."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """A number as Prometheus reads it."""
    text = repr(float(value))
    return _NO_NUMBERS.get(text, text)


_PAGE = os.sysconf("SC_PAGE_SIZE")
_STARTED = time.time()
STATM = "/proc/self/statm"


def process_metrics() -> Iterator[Metric]:
    """Memory, start and processor time of this process."""
    with suppress(OSError), open(STATM) as statm:  # noqa: PTH123  (pathlib weighs 1 MB)
        resident = int(statm.read().split()[1]) * _PAGE
        yield Family("process_resident_memory_bytes", "gauge", "Resident memory."), [({}, resident)]
    yield Family("process_start_time_seconds", "gauge", "When the process started."), [({}, _STARTED)]
    yield Family("process_cpu_seconds_total", "counter", "Processor time used."), [({}, time.process_time())]

"""The process metrics that every Prometheus client has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from exporter.http.exposition import Family, Metric

PAGE = os.sysconf("SC_PAGE_SIZE")
STARTED = time.time()
STATM = "/proc/self/statm"


def samples() -> Iterator[Metric]:
    """Memory, start and processor time of this process."""
    with suppress(OSError), open(STATM) as statm:  # noqa: PTH123  (pathlib weighs 1 MB)
        resident = int(statm.read().split()[1]) * PAGE
        yield Family("process_resident_memory_bytes", "gauge", "Resident memory."), [({}, resident)]
    yield Family("process_start_time_seconds", "gauge", "When the process started."), [({}, STARTED)]
    yield Family("process_cpu_seconds_total", "counter", "Processor time used."), [({}, time.process_time())]

"""How the exporter itself is doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter import __version__, process
from exporter.exposition import Family, Sample
from exporter.runs.contract import STATES


@dataclass(slots=True)
class Health:
    """Counters of the exporter; every problem with a file ends up here, none ends the exporter."""

    bytes_read: int = 0
    lines_read: int = 0
    dropped: Counter[str] = field(default_factory=lambda: Counter(too_long=0, malformed=0))
    file_errors: Counter[str] = field(default_factory=lambda: Counter(vanished=0, unreadable=0))
    restarts: int = 0
    collisions: int = 0
    state_errors: int = 0
    files: Counter[str] = field(default_factory=lambda: Counter(unreadable=0))
    runs: Counter[str] = field(default_factory=Counter)
    dormant: int = 0
    twins: int = 0
    targets: dict[str, bool] = field(default_factory=dict)
    poll_errors: dict[str, int] = field(default_factory=dict)
    unread_bytes: int = 0
    poll_seconds: float = 0.0
    polled: float = 0.0

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """Every metric about the exporter with its samples."""
        for name, kind, text, samples in self._own():
            yield Family(f"stepwatch_{name}", kind, text), samples
        yield from process.samples()

    def _own(self) -> Iterator[tuple[str, str, str, list[Sample]]]:
        yield (
            "exporter_build_info",
            "gauge",
            "Version; the value is always 1.",
            [({"version": __version__}, 1)],
        )
        yield "bytes_read_total", "counter", "Bytes read from logs.", [({}, self.bytes_read)]
        yield "lines_read_total", "counter", "Lines read from logs.", [({}, self.lines_read)]
        yield "lines_dropped_total", "counter", "Lines that could not be read.", _by("reason", self.dropped)
        yield "file_errors_total", "counter", "Files that could not be read.", _by("reason", self.file_errors)
        yield "file_restarts_total", "counter", "Logs that were emptied or replaced.", [({}, self.restarts)]
        yield (
            "name_collisions",
            "gauge",
            "Logs whose short name another log has too.",
            [({}, self.collisions)],
        )
        yield (
            "state_errors_total",
            "counter",
            "State files that could not be written.",
            [({}, self.state_errors)],
        )
        yield "files", "gauge", "Files below the watched folders.", _by("kind", self.files)
        states = Counter({state: self.runs[state] for state in STATES})
        yield "runs", "gauge", "Runs that are served.", _by("state", states)
        yield "dormant_runs", "gauge", "Runs that had ended before they were watched.", [({}, self.dormant)]
        yield "twin_logs", "gauge", "Logs of a run that is shown by another log of it.", [({}, self.twins)]
        yield (
            "target_up",
            "gauge",
            "1 for a polled page or server that answered last.",
            _by("name", self.targets),
        )
        yield (
            "target_errors_total",
            "counter",
            "Polls that failed.",
            _by("name", self.poll_errors),
        )
        yield "unread_bytes", "gauge", "Bytes of logs not read yet.", [({}, self.unread_bytes)]
        yield "poll_duration_seconds", "gauge", "How long the last look took.", [({}, self.poll_seconds)]
        yield "last_poll_timestamp_seconds", "gauge", "When the logs were looked at.", [({}, self.polled)]


def _by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [({label: value}, count) for value, count in counts.items()]

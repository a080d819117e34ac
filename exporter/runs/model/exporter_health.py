"""How the exporter itself is doing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter import __version__
from exporter.http.exposition import Metric, Sample, by_label, own, process_metrics
from exporter.runs.stats.catalogue import STATES

LOOK_SECONDS = 60.0
"""A look takes a second, and some more while a mount begins to hang: after that ExporterDown fires."""


class Polled(NamedTuple):
    """A page or server that is polled; ``answered`` is when it last did, in seconds since the epoch."""

    name: str
    source: str
    up: bool
    errors: int
    answered: float | None


Samples = Callable[[], Iterator[Metric]]  # what another part of the exporter reports about itself


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
    left_out: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    refused: int = 0
    targets: list[Polled] = field(default_factory=list)
    unstarted: Mapping[str, float] = field(default_factory=dict)
    unread_bytes: int = 0
    hung: Mapping[str, float] = field(default_factory=dict)
    poll_seconds: float = 0.0
    polled: float = 0.0
    others: list[Samples] = field(default_factory=list)

    def leave_out(self, runs: int, *, live: bool) -> None:
        """Count runs beyond the limit."""
        self.left_out["running" if live else "ended"] += runs

    def report(self) -> tuple[bool, str]:
        """Whether it is well, and what it waits for; a mount that hangs is no fault that a restart heals."""
        late = time.time() - self.polled
        if self.polled and late > LOOK_SECONDS:
            return False, f"the logs were not checked for {late:.0f} s\n"
        hung = [
            f"{mount} does not answer for {time.time() - since:.0f} s\n" for mount, since in self.hung.items()
        ]
        return True, "".join(["ok\n", *hung])

    def samples(self) -> Iterator[Metric]:
        """Every metric about the exporter with its samples."""
        yield own("exporter_build_info", "Version; the value is always 1.", [({"version": __version__}, 1)])
        yield own("bytes_read_total", "Bytes read from logs.", self.bytes_read)
        yield own("lines_read_total", "Lines read from logs.", self.lines_read)
        yield own("lines_dropped_total", "Lines that could not be read.", by_label("reason", self.dropped))
        yield own("file_errors_total", "Files that could not be read.", by_label("reason", self.file_errors))
        yield own("file_restarts_total", "Logs that were emptied or replaced.", self.restarts)
        yield own("state_errors_total", "State files that could not be written.", self.state_errors)
        yield own("files", "Files below the watched folders.", by_label("kind", self.files))
        yield own("unread_bytes", "Bytes of logs not read yet.", self.unread_bytes)
        text = "Since when a file system does not answer."
        yield own("mount_hung_since_timestamp_seconds", text, by_label("mount", self.hung))
        yield own(
            "runs", "Runs that are served.", by_label("state", {name: self.runs[name] for name in STATES})
        )
        left_out = {name: self.left_out[name] for name in ("running", "ended")}
        yield own(
            "left_out_runs", "Runs beyond the limit, which are not watched.", by_label("state", left_out)
        )
        yield own("dormant_runs", "Runs that had ended before they were watched.", self.dormant)
        yield own("name_collisions", "Logs whose short name is not unique.", self.collisions)
        yield own("events_refused_total", "Events of too many runs in one log.", self.refused)
        text = "When the oldest log appeared that has grown since without a step of any run."
        yield own("log_without_step_timestamp_seconds", text, by_label("log", self.unstarted))
        yield own("duplicate_logs", "Logs of a run that is shown by another log of it.", self.duplicates)
        up: list[Sample] = [({"name": each.name, "source": each.source}, each.up) for each in self.targets]
        errors: list[Sample] = [({"name": each.name}, each.errors) for each in self.targets]
        answers = {each.name: each.answered for each in self.targets if each.answered is not None}
        yield own("target_up", "1 if the last poll of the page or server succeeded.", up)
        yield own("target_errors_total", "Polls that failed.", errors)
        yield own("target_answered_timestamp_seconds", "When it last answered.", by_label("name", answers))
        yield own("poll_duration_seconds", "Duration of the last check of the logs.", self.poll_seconds)
        yield own("last_poll_timestamp_seconds", "When the logs were last checked.", self.polled)
        for samples in self.others:
            yield from samples()
        yield from process_metrics()

"""Whether the hub takes what this machine's agent sends, for the agent's own pages."""

from __future__ import annotations

import re
import time
from threading import Thread

from exporter.engine_client import Client, UnreachableError

CHECK_SECONDS = 10.0
LATE_SECONDS = 60.0
"""Four of the slower scrapes."""
_STATUS = "`make status` on this machine says why, and the fix."


class SenderHealth:
    """Reads the metrics of the agent's Prometheus again and again, in a thread of its own."""

    def __init__(self, prometheus: Client) -> None:
        self.faults: tuple[str, ...] = ()
        self._prometheus = prometheus
        self._refused: float | None = None

    def start(self) -> None:
        """Start the checks."""
        Thread(target=self._run, name="sender health", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.check()
            time.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Check once."""
        try:
            page = self._prometheus.get("/metrics").body
        except UnreachableError as fault:
            self.faults = (
                f"The agent's Prometheus does not answer ({fault.args[0]}): nothing is sent. {_STATUS}",
            )
            return
        refused = _of_hub("samples_failed_total", page)
        sent = _of_hub("queue_highest_sent_timestamp_seconds", page)
        before, self._refused = self._refused, refused
        if before is not None and refused > before:
            self.faults = (f"The hub refuses this machine's samples, which are lost. {_STATUS}",)
        elif time.time() - max(sent, _started(page)) > LATE_SECONDS:
            self.faults = (f"The hub takes no samples of this machine; they are kept for 12h. {_STATUS}",)
        else:
            self.faults = ()


def _of_hub(name: str, page: str) -> float:
    found = re.search(
        rf'^prometheus_remote_storage_{name}{{remote_name="hub",[^}}]*}} (\S+)$', page, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def _started(page: str) -> float:
    found = re.search(r"^process_start_time_seconds (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0

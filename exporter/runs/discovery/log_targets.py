"""The servers that runs' logs report, each with its run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.target_registry import ROLLOUT, Target
from exporter.runs.logs.log import Log
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Servers


class _Mention(NamedTuple):
    """What a log says; ``run`` is empty while the log has no step, ``over`` once the run has ended."""

    servers: Servers
    run: str = ""
    over: bool = False


class LogTargets:
    """Gets from ``update`` what the logs say now."""

    name = "log"

    def __init__(self, allowlist: Allowlist) -> None:
        self.read: float | None = None
        self._allowlist = allowlist
        self._mentions: list[_Mention] = []
        self._passed: dict[_Mention, tuple[str, ...]] = {}

    def update(self, views: Iterable[View], logs: Iterable[Log]) -> None:
        """Take what the logs of runs report, and those without a run yet; of an address the last counts."""
        self._mentions = [_Mention(servers) for log in logs if log.run_set is None for servers in log.servers]
        for view in sorted(views, key=lambda view: (view.state == "running", view.run.times.last or 0.0)):
            over = view.state != "running"
            for run in (view.run, *view.duplicates):  # the console's log may not be the one that is shown
                self._mentions += [_Mention(servers, view.name, over) for servers in run.servers]
        self.read = time.time() if self._mentions else self.read

    def targets(self) -> Iterator[Target]:
        """Yield the servers of all mentions; those of a mention are checked once."""
        passed, self._passed = self._passed, {}
        for one in self._mentions:
            self._passed[one] = passed[one] if one in passed else self._checked(one)
        for one, addresses in self._passed.items():
            labels = {"job": ROLLOUT, "role": ROLLOUT, **({"run": one.run} if one.run else {})}
            for address in addresses:
                yield Target(address, labels, one.servers.path, self.name, one.over)

    def _checked(self, mention: _Mention) -> tuple[str, ...]:
        place = mention.run or "a log without a step"
        return self._allowlist.passed(self.name, place, mention.servers.addresses)

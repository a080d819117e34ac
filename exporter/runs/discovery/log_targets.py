"""The servers that runs' logs report, each with its run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from exporter.runs.discovery.address import Allowlist
from exporter.runs.discovery.target_registry import ROLLOUT, Target
from exporter.runs.logs.log import Log
from exporter.runs.signals.record import Servers
from exporter.runs.visible.views import View

NAME = "log"


class _Mention(NamedTuple):
    """What a log says; ``run`` is empty while the log has no step, ``over`` once the run has ended."""

    servers: Servers
    run: str = ""
    over: bool = False


class LogTargets:
    """Gets from ``take`` what the logs say now."""

    name = NAME

    def __init__(self, gate: Allowlist) -> None:
        self.read: float | None = None
        self._gate = gate
        self._mentions: tuple[_Mention, ...] = ()
        self._passed: dict[_Mention, tuple[str, ...]] = {}

    def take(self, views: Iterable[View], logs: Iterable[Log]) -> None:
        """Take what runs' logs tell, and texts that are no run's yet. Of an address, the last run counts."""
        order = sorted(views, key=lambda view: (view.state == "running", view.run.times.last or 0.0))
        waiting = (_Mention(servers) for log in logs if log.run_set is None for servers in log.servers)
        self._mentions = (*waiting, *(mention for view in order for mention in _of(view)))
        self.read = time.time() if self._mentions else self.read

    def targets(self) -> Iterator[Target]:
        mentions = self._mentions
        self._passed = {
            one: self._passed[one] if one in self._passed else self._checked(one) for one in mentions
        }
        for one, addresses in self._passed.items():
            labels = {"job": ROLLOUT, "role": ROLLOUT, **({"run": one.run} if one.run else {})}
            for address in addresses:
                yield Target(address, labels, one.servers.path, NAME, one.over)

    def _checked(self, mention: _Mention) -> tuple[str, ...]:
        return self._gate.passed(NAME, mention.run or "a log without a step", mention.servers.addresses)


def _of(view: View) -> Iterator[_Mention]:
    """What all logs of a run tell: its console's may not be the one that is shown."""
    for run in (view.run, *view.twins):
        for servers in run.servers:
            yield _Mention(servers, view.name, view.state != "running")

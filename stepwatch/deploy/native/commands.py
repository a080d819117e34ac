"""What users can do with a stack of plain processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.deploy.native import demo, grafana, part, service, status, supervisord, up
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.state import DamagedStateError, State
from stepwatch.services.demo import wait_unscraped
from stepwatch.system import processes
from stepwatch.system.terminal import Say
from stepwatch.testalert import journal
from stepwatch.testalert.journal import Journal

_ORPHAN_GRACE = 10
_UNSCRAPED_SECONDS = 20
"""Longer than the interval of the slowest scrape, that of the GPUs."""


def down(place: State, say: Say) -> int:
    """Stop every process of the stack, supervised or orphaned; data and logs stay. The caller holds the lock.

    Returns:
        0 when nothing of it runs any more, 1 when some process could not be ended.
    """
    ran = bool(processes.marked(place.mark))
    parts: list[Part] = []
    with contextlib.suppress(DamagedStateError):
        parts = part.load(place.parts)
    place.parts.unlink(missing_ok=True)  # first: so an `up` that waits for its parts learns of this
    left = _stop(place, parts, say)
    place.forget()
    if left:
        say(f"These processes do not end: {', '.join(str(process.pid) for process in left)}.")
        return 1
    say(f"Stepwatch is down. Data and logs stay in {place.folder}." if ran else "Stepwatch is not running.")
    return 0


def _stop(place: State, parts: Iterable[Part], say: Say) -> list[psutil.Process]:
    place.give_up()
    processes.resume(place.mark)
    addresses = {each.name: each.address for each in parts}
    with supervisord.connected(place) as server:
        if server and "demo" in addresses:
            for name in ("exporter", "gpu"):
                server.stop(name)
            say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
            wait_unscraped(f"http://{addresses['prometheus']}", _UNSCRAPED_SECONDS)
    service.stop(place)
    with supervisord.connected(place) as server:
        if server:
            server.shut_down(place.mark)
    return processes.stop(place.mark, grace=_ORPHAN_GRACE)


@dataclass(frozen=True)
class Processes:
    """The stack in one state folder, ``place``; ``config`` is the configuration file.

    ``as_service``: whether ``up`` and ``down`` are about its systemd unit as well.
    """

    config: Path
    place: State
    say: Say
    as_service: bool = False

    def up(self, runs: Path | None, *, demo: bool, repair: bool) -> int:
        """Bring it up, or up to date."""
        return up.up(
            self.config,
            runs,
            self.place,
            self.say,
            demo=demo,
            as_service=self.as_service,
            repair=repair,
        )

    def down(self) -> int:
        """Take it down; data and logs stay."""
        code = down(self.place, self.say)
        if self.as_service:
            service.remove(self.place, self.say)
        return code

    def status(self) -> int:
        """Show how each process is."""
        return status.status(self.place, self.say)

    def demo_reset(self) -> int:
        """Have the demo start over."""
        return demo.demo_reset(self.place, self.say)

    def journal(self, part: str) -> Journal:
        """What a part logs from now on."""
        return journal.opened(self.place.log(part))

    def log(self, part: str) -> str:
        """Where people read what a part logs."""
        return str(self.place.log(part))

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for: links lead to Grafana where there is one."""
        parts = OnThisMachine(config).parts
        there = parts if grafana.find() else parts - {"grafana"}
        return self.place.deployment(config, there)

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""
        return self.place.folder / "rendered"

    @property
    def exists(self) -> bool:
        """Whether any process of it lives."""
        return bool(processes.marked(self.place.mark))

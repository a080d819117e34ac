"""What users can do with a stack of plain processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.deploy.native import demo, down, grafana, service, status, up
from stepwatch.deploy.native.state import State
from stepwatch.system import processes
from stepwatch.system.terminal import Say
from stepwatch.testalert import journal
from stepwatch.testalert.journal import Journal


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
        code = down.down(self.place, self.say)
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

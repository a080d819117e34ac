"""What users can do with a stack of containers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment
from stepwatch.deploy.compose import demo, down, status, up
from stepwatch.deploy.compose.engine import Engine
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import containers
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.terminal import Say
from stepwatch.testalert.journal import Journal

ALL = ("demo", "tools")


@dataclass(frozen=True)
class Containers:
    """The stack of compose.yaml; ``config`` is the configuration file, ``place`` remembers RUNS=."""

    config: Path
    place: State
    say: Say

    def up(self, runs: Path | None, *, demo: bool, repair: bool) -> int:
        """Bring it up, or up to date."""
        return up.up(self.config, runs, self.place, self.say, demo=demo, repair=repair)

    def down(self) -> int:
        """Take it down; volumes stay."""
        return down.down(self._project, self.say)

    def status(self) -> int:
        """Show how each container is."""
        return status.status(self._project, self.rendered, self.say)

    def demo_reset(self) -> int:
        """Have the demo start over."""
        return demo.demo_reset(self._project, load(self.config), self.say)

    def journal(self, part: str) -> Journal:
        """What a part says from now on."""
        since = time.time()
        return lambda: self._project.tell("logs", "--no-log-prefix", f"--since={since:.3f}", part)

    def log(self, part: str) -> str:
        """Where people read what a part says."""
        return f"`docker compose logs {part}`"

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for."""
        return containers(config)

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""
        return up.rendered(self.config, self.place)

    @property
    def exists(self) -> bool:
        """Whether there are containers of it, running or not."""
        return bool(self._project.services())

    @property
    def _project(self) -> Engine:
        return Engine(CHECKOUT, profiles=ALL)

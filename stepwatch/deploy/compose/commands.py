"""What users can do with a stack of containers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment
from stepwatch.deploy.compose import demo, status, up
from stepwatch.deploy.compose.demo import SIMULATIONS
from stepwatch.deploy.compose.engine import Engine, addresses
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import containers
from stepwatch.services.demo import wait_unscraped
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.terminal import Say
from stepwatch.testalert.journal import Journal

_UNSCRAPED_SECONDS = 50
"""The name of a stopped container is unknown to DNS: after its refresh, 15 s at most, Prometheus waits for
two intervals of the GPUs' scrape before it ends the series of a target that is gone."""


def down(project: Engine, say: Say) -> int:
    """Remove every container of the stack; volumes, with data, silences and the password, stay.

    Returns:
        0 when nothing of it runs any more, else what Compose ended with.
    """
    services = project.services()
    if not services:
        say("Stepwatch is not running.")
        return 0
    running = {service.name for service in services if service.state == "running"}
    if running.issuperset(SIMULATIONS) and (prometheus := addresses(services).get("prometheus")):
        project.tell("stop", "exporter", "demo-gpu")
        say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
        wait_unscraped(f"http://{prometheus}", _UNSCRAPED_SECONDS)
    if code := project.show("down", "--remove-orphans"):
        return code
    say("Stepwatch is down. Its data stays in Docker's volumes (`docker volume ls`).")
    return 0


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
        return down(self._project, self.say)

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

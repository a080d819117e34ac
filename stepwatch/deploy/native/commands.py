"""What users can do with a stack of plain processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.deploy.native import grafana, service, stack, status, supervision, supervisord
from stepwatch.deploy.native.stack import Part, Stack
from stepwatch.deploy.native.state import DamagedStateError, StackError, State
from stepwatch.programs.programs import Program, obtain, written
from stepwatch.render import output
from stepwatch.render.generator import generate
from stepwatch.services import agent
from stepwatch.services import demo as demo_alerts
from stepwatch.services.runs import folder_remark, make_folder
from stepwatch.system import files, http_client, processes
from stepwatch.system.terminal import Say, table

SIMULATIONS = ("demo", "gpu")

_ORPHAN_GRACE = 10
_UNSCRAPED_SECONDS = 20
"""Longer than the interval of the slowest scrape, that of the GPUs."""


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
        """Render the configuration and run the stack with it.

        Args:
            runs: The folder or glob to read runs from, in place of the file's `runs.path`.
            demo: Whether simulated runs and GPUs are part of it; those of an earlier time go.
            repair: Whether to move damaged files aside that keep a part from starting.

        Returns:
            0 when every part is ready, 1 when some are not.

        Raises:
            Refused: The configuration is wrong, a program is missing, a port is in use; a running stack was
            not changed.
        """
        place, say = self.place, self.say
        place.create()
        with place.lock("`make up`", say):
            output.recover(place.rendered)
            config = load(self.config)
            agent.require_no_demo(config, demo=demo)
            remembered = None if runs else place.runs(config.runs.path, say)
            read = (runs or remembered or config.runs.path).absolute()
            planned = Stack(config, place, read, demo, self.config)
            parts, targets = _parts(planned, say)
            supervision.require_ports(parts, place)
            made = make_folder(planned.runs)
            outcome = generate(self.config, place.rendered, place=partial(place.deployment, parts=targets))
            place.remember(self.config, runs, config.runs.path, say)
            place.make_password()
            remark = folder_remark(made=made, remembered=bool(remembered))
            say(f"Reading runs from {planned.runs}{remark}")
            if demo:
                say(f"Reading simulated runs from {planned.simulated}/demo")
            if outcome.warning:
                say(outcome.warning)
            watched = [*parts, stack.guardian(place, planned.log)]
            fresh = supervision.start(watched, place, say, as_service=self.as_service)
        if supervision.settle(watched, fresh, place, say, repair=repair):
            return 1  # the last line says which parts failed
        if not demo and planned.simulated.exists():
            shutil.rmtree(planned.simulated, ignore_errors=True)
            if not config.is_agent:  # else the alerts of the demo ended with Prometheus and Alertmanager
                with place.lock("`make up`", say):
                    self._end_demo()
        self._conclude(config, parts)
        status.health(parts, place).show_after_start(say)
        return 0

    def down(self) -> int:
        """Stop every process of the stack, supervised or orphaned. The caller holds the lock.

        Returns:
            0 when nothing of it runs any more, 1 when some process could not be ended.
        """
        place, say = self.place, self.say
        ran = self.exists
        parts: list[Part] = []
        with suppress(DamagedStateError):
            parts = stack.load(place.parts)
        place.parts.unlink(missing_ok=True)  # first: so an `up` that waits for its parts notices
        place.give_up()
        processes.resume(place.mark)
        addresses = {each.name: each.address for each in parts}
        with supervisord.connected(place) as server:
            if server and "demo" in addresses:
                for name in ("exporter", "gpu"):
                    server.stop(name)
                say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
                demo_alerts.wait_unscraped(f"http://{addresses['prometheus']}", _UNSCRAPED_SECONDS)
        service.stop(place)
        with supervisord.connected(place) as server:
            if server:
                server.shut_down(place.mark)
        left = processes.stop(place.mark, grace=_ORPHAN_GRACE)
        place.forget()
        if left:
            say(f"These processes do not end: {', '.join(str(process.pid) for process in left)}.")
        elif ran:
            say(f"Stepwatch is down. Data and logs stay in {place.folder}.")
        else:
            say("Stepwatch is not running.")
        if self.as_service:
            service.remove(place, say)
        return 1 if left else 0

    def status(self) -> int:
        """Show the state of each process."""
        return status.status(self.place, self.say)

    def demo_reset(self) -> int:
        """Restart the simulated runs and GPUs, and end their alerts. The caller holds the lock.

        Prometheus restarts too, with its history: otherwise it would keep those alerts.

        Returns:
            0 when the demo was restarted, 1 when it does not run, or a part does not come up again.
        """
        place, say = self.place, self.say
        parts = {each.name: each for each in stack.load(place.parts)}
        with supervisord.connected(place) as server:
            if not server or "demo" not in parts:
                say("The demo is not running. `make up DEMO=1` starts it.")
                return 1
            begun = time.time()
            for name in SIMULATIONS:
                server.restart(name)
            say("The simulated runs and GPUs restart from the beginning.")
            demo_alerts.wait_started(f"http://{parts['prometheus'].address}", begun)
        failed = supervision.wait_ready([parts[name] for name in SIMULATIONS], place, say)
        supervision.explain(failed, place, say)
        count, ready = self._end_alerts(parts)
        say(f"{count} alerts of the demo have ended. They fire again within three minutes.")
        return 0 if ready and not failed else 1

    def journal(self, part: str) -> Callable[[], str]:
        """Return a function that reads new log lines of a part."""
        return files.from_now_on(self.place.log(part))

    def log(self, part: str) -> str:
        """Where people read the log of a part."""
        return str(self.place.log(part))

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for: links lead to Grafana where there is one."""
        parts = OnThisMachine(config).parts
        return self.place.deployment(config, parts if grafana.find() else parts - {"grafana"})

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""
        return self.place.rendered

    @property
    def exists(self) -> bool:
        """Whether any process of it lives."""
        return bool(processes.marked(self.place.mark))

    def _conclude(self, config: Config, parts: Sequence[Part]) -> None:
        """Print the addresses of the pages and notes about the running stack."""
        place, say = self.place, self.say
        say("")
        for line in table([(part.name, part.url, part.shows) for part in parts]):
            say(f"  {line}")
        say("")
        if not config.is_agent and not any(part.name == "grafana" for part in parts):
            say("Grafana 10 or later is not on PATH: the exporter's page shows the runs too.")
        if config.is_agent:
            say(agent.where(config))
            for sender in status.senders(parts, place):
                for line in sender.closing():
                    say(line)
        if config.is_hub:
            say(agent.on_hub(config))
        say(f"Logs are in {place.logs}. `make status` shows its state, `make down` stops it.")

    def _end_demo(self) -> None:
        """End the alerts of the demo, after its processes ended. The caller holds the lock."""
        parts = {each.name: each for each in stack.load(self.place.parts)}
        demo_alerts.wait_gone(f"http://{parts['prometheus'].address}")
        count, _ = self._end_alerts(parts)
        self.say(f"The demo was removed; {count} of its alerts have ended.")

    def _end_alerts(self, parts: Mapping[str, Part]) -> tuple[int, bool]:
        """How many alerts were ended, and whether Prometheus is up again."""
        with supervisord.connected(self.place) as server:
            if server:
                server.restart("prometheus")
        failed = supervision.wait_ready([parts["prometheus"]], self.place, self.say)
        supervision.explain(failed, self.place, self.say)
        alertmanager = f"http://{parts['alertmanager'].address}"
        return demo_alerts.end_alerts(alertmanager, parts["gpu"].address), not failed


def _parts(planned: Stack, say: Say) -> tuple[list[Part], frozenset[str]]:
    """What to run, and the names of all that Prometheus can read."""
    prometheus = obtain("prometheus", say)
    served = serves_already(planned.config, planned.place)
    if served:
        say(f"node_exporter: the one that serves on port {planned.config.ports.node} already")
    node = None if served else node_exporter()
    if planned.config.is_agent:
        parts = planned.agent_parts(prometheus, node)
    else:
        alertmanager = obtain("alertmanager", say)
        require_bare(planned.config, alertmanager)
        parts = planned.parts(prometheus, alertmanager, grafana.find(), node)
    return parts, frozenset({part.name for part in parts} | ({"node"} if served else set()))


def require_bare(config: Config, alertmanager: Program) -> None:
    """Check that mail passwords have nothing around them, if this Alertmanager would send that along.

    Raises:
        StackError: names the first file that has.
    """
    if alertmanager.version >= (0, 27, 0):
        return
    for receiver in config.receivers:
        way = receiver.integration
        path = next(iter(way.secrets), None) if way.label == "email" else None
        key = "mail.password_file" if receiver.mail else way.block
        if path and (content := path.read_bytes()) != content.strip():
            raise StackError(
                f"receivers: {receiver.name}: {key}: {path} ends with a newline or a space, and Alertmanager "
                f"{written(alertmanager.version)} takes that as part of the password. Expected: only the "
                f"password. Fix: printf %s PASSWORD > {path}, or Alertmanager 0.27 or later."
            )


def node_exporter() -> Path | None:
    """node_exporter from PATH, ``None`` if there is none; it is never downloaded."""
    names = ("node_exporter", "prometheus-node-exporter")
    return next((Path(path) for path in map(shutil.which, names) if path), None)


def serves_already(config: Config, place: State) -> bool:
    """Whether a node_exporter that is not ours, as the distribution's service, answers on its port."""
    if not processes.port_taken(config.listen, config.ports.node):
        return False
    owner = processes.port_owner(config.ports.node)
    if owner and processes.belongs(owner.pid, place.mark):
        return False
    # It waits five seconds itself for a file system that hangs.
    page = http_client.read(f"http://{config.address('node')}/metrics", timeout=20)
    return "\nnode_exporter_build_info{" in (page or "")

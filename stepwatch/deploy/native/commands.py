"""What users can do with a stack of plain processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.config.deployment import Deployment, OnThisMachine
from stepwatch.deploy.native import installed, service, stack, status, supervisord
from stepwatch.deploy.native.stack import Part, Stack
from stepwatch.deploy.native.state import DamagedStateError, StackError, State
from stepwatch.render import layout
from stepwatch.render.generator import generate
from stepwatch.schema.errors import Refused
from stepwatch.services import agent, agent_users, lifecycle
from stepwatch.services.lifecycle import Look
from stepwatch.services.settings import Settings, loaded, wait_loaded
from stepwatch.system import files, http_client, processes
from stepwatch.system.files import last_lines
from stepwatch.system.programs import obtain
from stepwatch.system.terminal import Say, table

SIMULATIONS = ("demo", "gpu")
PROTECTED = ("prometheus", "alertmanager", stack.SENDER)
"""The parts that ask for a password."""

_UNSCRAPED_SECONDS = 20
"""Longer than the interval of the slowest scrape, that of the GPUs."""
_RELOAD_SECONDS = 15
_FORGET_SECONDS = 2
"""After which Prometheus and Alertmanager have usually read their settings: with those of before, a bridge
that is stopped fails their scrapes and notifications, which is an alert for five minutes."""


@dataclass(frozen=True)
class Processes:
    """The stack in one state folder, ``place``; ``config`` is the configuration file."""

    config: Path
    place: State
    say: Say
    as_service: bool = False

    def up(self, runs: Path | None, *, demo: bool) -> int:
        """Render the configuration and run the stack with it; return 1 if some part is not ready, else 0."""
        place, say = self.place, self.say
        place.create()
        with place.lock("`make up`", say):
            config = load(self.config)
            agent.require_no_demo(config, demo=demo)
            remembered = None if runs else place.runs(config.runs.path, say)
            read = (runs or remembered or config.runs.path).absolute()
            planned = Stack(config, place, read, demo, self.config)
            parts, targets = _parts(planned, say)
            require_ports(parts, place)
            made = lifecycle.make_folder(planned.runs)
            if config.is_hub:
                agent_users.save(config, layout.credentials(), agent_users.nodes(layout.credentials()))
            outcome = generate(self.config, place.rendered, place=partial(place.deployment, parts=targets))
            place.remember(self.config, runs, config.runs.path, say)
            place.make_password()
            remark = lifecycle.folder_remark(made=made, remembered=bool(remembered))
            say(f"Reading runs from {planned.runs}{remark}")
            if demo:
                say(f"Reading simulated runs from {planned.simulated}/demo")
            if outcome.warning:
                say(outcome.warning)
            fresh = start(parts, place, say, as_service=self.as_service)
        if settle(parts, fresh, place, say):
            return 1  # the last line says which parts failed
        if not demo and planned.simulated.exists():
            shutil.rmtree(planned.simulated, ignore_errors=True)
            if not config.is_agent:  # else the alerts of the demo ended with Prometheus and Alertmanager
                with place.lock("`make up`", say):
                    by_name = {each.name: each for each in stack.load(place.parts)}
                    lifecycle.wait(f"http://{by_name['prometheus'].address}", lifecycle.DEMO_GONE)
                    say(f"The demo was removed; {self._end_alerts(by_name)[0]} of its alerts have ended.")
        self._conclude(config, parts)
        status.health(parts, place).show_after_start(say)
        return 0

    def down(self) -> int:
        """Stop the whole stack; return 1 if supervisord does not end, else 0. The caller holds the lock."""
        place, say, ran = self.place, self.say, self.exists
        parts: list[Part] = []
        with suppress(DamagedStateError):
            parts = stack.load(place.parts)
        place.parts.unlink(missing_ok=True)  # first: so an `up` that waits for its parts notices
        place.give_up()
        supervisord.rouse(place, say)
        addresses = {each.name: each.address for each in parts}
        with supervisord.connected(place) as server:
            if server and "demo" in addresses:
                for name in ("exporter", "gpu"):
                    server.stop(name)
                say(f"Waiting until Prometheus has seen the end of the demo: at most {_UNSCRAPED_SECONDS} s.")
                prometheus = f"http://{addresses['prometheus']}"
                lifecycle.wait(prometheus, lifecycle.UNSCRAPED, _UNSCRAPED_SECONDS)
        service.stop(place)
        with supervisord.connected(place) as server:
            if server:
                server.shut_down()
        if not supervisord.kill(place):
            say(f"supervisord (pid {supervisord.living(place)}) does not end.")
            return 1
        place.forget()
        kept = f"Stepwatch is down. Data and logs stay in {place.folder}."
        say(kept if ran else "Stepwatch is not running.")
        if self.as_service:
            service.remove(place, say)
        return 0

    def status(self) -> int:
        """Show the state of each process."""
        return status.status(self.place, self.say)

    def demo_reset(self) -> int:
        """Restart the simulated runs and GPUs, and Prometheus with its history, and end their alerts."""
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
            lifecycle.wait_demo_started(f"http://{parts['prometheus'].address}", begun)
        failed = wait_ready([parts[name] for name in SIMULATIONS], place, say)
        explain(failed, place, say)
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
        return self.place.deployment(config, parts if installed.find_grafana() else parts - {"grafana"})

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``."""
        return self.place.rendered

    def password(self, address: str) -> str | None:
        """The password of our services for a server (host:port) of the stack, ``None`` for others."""
        known: set[str] = set()
        with suppress(DamagedStateError):
            known = {each.address for each in stack.load(self.place.parts) if each.name in PROTECTED}
        with suppress(Refused):
            config = load(self.config)
            known |= {config.address(part) for part in ("prometheus", "alertmanager")}
            if config.is_hub and address == config.receiver_url.partition("://")[2]:
                return agent_users.own_password(layout.credentials())
        file = self.place.internal_password
        return file.read_text(encoding="ascii").strip() if address in known and file.exists() else None

    @property
    def exists(self) -> bool:
        """Whether it runs."""
        return bool(supervisord.living(self.place))

    def _conclude(self, config: Config, parts: Sequence[Part]) -> None:
        """Print the addresses of the pages and notes about the running stack."""
        place, say = self.place, self.say
        say("")
        for line in table([(part.name, part.url, part.shows) for part in parts]):
            say(f"  {line}")
        say("")
        if not config.is_agent:
            say(lifecycle.logins(str(place.password)))
        if not config.is_agent and not any(part.name == "grafana" for part in parts):
            say("Grafana 10 or later is not on PATH: the exporter's page shows the runs too.")
        if config.is_agent:
            say(agent.where(config))
        if config.is_hub:
            say(agent.on_hub(config))
        say(f"Logs are in {place.logs}. `make status` shows its state, `make down` stops it.")

    def _end_alerts(self, parts: Mapping[str, Part]) -> tuple[int, bool]:
        """End the demo's alerts; return how many there were, and whether Prometheus is up again."""
        with supervisord.connected(self.place) as server:
            if server:
                server.restart("prometheus")
        failed = wait_ready([parts["prometheus"]], self.place, self.say)
        explain(failed, self.place, self.say)
        alertmanager = f"http://{parts['alertmanager'].address}"
        return lifecycle.end_demo_alerts(alertmanager, parts["gpu"].address), not failed


def _parts(planned: Stack, say: Say) -> tuple[list[Part], frozenset[str]]:
    """What to run, and the names of all that Prometheus can read."""
    prometheus = obtain("prometheus", say)
    served = installed.serves_already(planned.config, planned.place)
    if served:
        say(f"node_exporter: the one that serves on port {planned.config.ports.node} already")
    node = None if served else installed.node_exporter()
    if planned.config.is_agent:
        parts = planned.agent_parts(prometheus, node)
    else:
        alertmanager = obtain("alertmanager", say)
        installed.require_bare(planned.config, alertmanager)
        parts = planned.parts(prometheus, alertmanager, installed.find_grafana(), node)
    return parts, frozenset({part.name for part in parts} | ({"node"} if served else set()))


def start(parts: Sequence[Part], place: State, say: Say, *, as_service: bool = False) -> set[str]:
    """Start what does not run, restart what changed; return those names. May refuse beforehand."""
    require_ports(parts, place)
    if as_service:
        service.install(place, say)
    supervisord.configure(place, parts)
    stack.save(parts, place.parts)
    supervisord.rouse(place, say)
    with supervisord.connected(place) as server:
        if server and as_service and not service.runs(place):
            say("Stepwatch moves below systemd: all parts restart.")
            server.shut_down()
        elif server:
            if "bridge" in server.reports() and not any(part.name == "bridge" for part in parts):
                for name in ("alertmanager", "prometheus"):
                    server.send_hup(name)
                time.sleep(_FORGET_SECONDS)
            fresh = server.apply() | server.restart_down()
            say(f"Stepwatch is running; restarted: {', '.join(sorted(fresh)) or 'nothing'}.")
            return fresh
    (service if service.installed(place) else supervisord).start(place)
    return {part.name for part in parts}


def settle(parts: Sequence[Part], fresh: set[str], place: State, say: Say) -> int:
    """Wait until the parts are ready, reload the others' settings; return 1 if some are not well, else 0."""
    failed = wait_ready(parts, place, say)
    if not place.parts.exists():
        say("`make down` took the stack down meanwhile.")
        return 1
    kept = [part for part in parts if part.name not in fresh | failed.keys()]
    refused = [each.name for each in kept if each.settings and not _reload(each, each.settings, place, say)]
    explain(failed, place, say)
    if failed or refused:
        say(lifecycle.failure_summary([*failed, *refused], len(parts)))
    return 1 if failed or refused else 0


def require_ports(parts: Iterable[Part], place: State) -> None:
    """Raise a StackError that names each port of the stack that another process uses, and its owner."""

    def ours(owner: processes.Owner | None) -> bool:
        return owner is not None and supervisord.owns(place, owner.pid)

    webs = [part.web for part in parts if part.web]
    listening = [(key, web.listen, port) for web in webs for key, port in web.ports.items()]
    if found := list(filter(None, (processes.port_conflict(*each, ours) for each in listening))):
        raise StackError("\n".join(found))


def wait_ready(parts: Sequence[Part], place: State, say: Say) -> dict[str, str]:
    """Wait until all parts answer or are given up; return why, by name, for those that are given up."""
    by_name = {part.name: part for part in parts}

    def looks(names: Iterable[str]) -> dict[str, Look]:
        with supervisord.connected(place) as server:
            reports = server.reports() if server else {}
        ends = supervisord.exits(place)
        gone = not place.parts.exists() or not supervisord.living(place)

        def ready(name: str) -> bool:
            if by_name[name].web:
                return http_client.read(by_name[name].ready) is not None
            return name in reports and reports[name].state == "RUNNING"

        def look(name: str) -> Look:
            busy = lifecycle.replay_progress(last_lines(place.log(name), 50))
            return Look(ready(name), len(ends.get(name, [])), busy, gone)

        return {name: look(name) for name in names}

    ended = {name: len(each) for name, each in supervisord.exits(place).items()}
    return lifecycle.wait_for_parts(by_name, looks, say, ended)


def explain(failed: Mapping[str, str], place: State, say: Say) -> None:
    """Print for each part that was given up the reason, the end of its log, and the fix."""
    for name, reason in failed.items():
        ends, log = supervisord.exits(place).get(name, []), place.log(name)
        whole = f"{reason} (last: {ends[-1]})" if ends else reason
        lifecycle.explain(name, whole, str(log), last_lines(log, 5), say)


def _reload(part: Part, settings: Settings, place: State, say: Say) -> bool:
    """Reload the settings of a part; return whether it accepted them."""
    if settings.itself:  # SIGHUP would end it
        due = settings.changed()
    else:
        before = loaded(settings, http_client.read(part.metrics))
        due = before.at if before else 0
        with supervisord.connected(place) as server:
            if server:
                server.send_hup(part.name)
    done = wait_loaded(settings, part.metrics, after=due, patience=_RELOAD_SECONDS)
    refusal = f"refused its settings: see {place.log(part.name)}"
    say(f"  {part.name} {'runs with the current settings' if done else refusal}")
    return done

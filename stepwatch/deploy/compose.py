"""What users can do with a stack of containers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stepwatch.config import Config, cluster, load
from stepwatch.config.deployment import CONTAINER_PORTS, Deployment, InContainers
from stepwatch.deploy.engine import Engine, EngineError, Service, addresses, gpu_files
from stepwatch.deploy.native.state import State
from stepwatch.deploy.native.status import DEGRADED, NOT_RUNNING, UP
from stepwatch.render import layout, variables
from stepwatch.render.generator import containers, generate
from stepwatch.render.variables import of_config, of_machine, published
from stepwatch.services import agent, agent_users, lifecycle, settings
from stepwatch.services.health_report import HealthReport
from stepwatch.services.lifecycle import Look
from stepwatch.services.settings import SettingsState, reload
from stepwatch.system import processes
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.http_client import read_all
from stepwatch.system.terminal import Say, duration, table

_HEADINGS = ("service", "state", "up for", "restarts", "settings", "page")

_RUNS = "/runs"
"""Where the exporter's container sees the run folder."""

OPTIONAL = ("bridge",)
"""The services that run only for what config.yaml has, each with a profile of its name."""
_AUTO_RELOAD_SECONDS = 7
"""Prometheus looks for new settings every 5 s (compose.yaml)."""
ALL = ("demo", "tools", *OPTIONAL)
SIMULATIONS = ("demo", "demo-gpu")

_UNSCRAPED_SECONDS = 50
"""The name of a stopped container is unknown to DNS: after its refresh, 15 s at most, Prometheus waits for
two intervals of the GPUs' scrape before it ends the series of a target that is gone."""

_SHOWS = {
    "exporter": "runs and their curves",
    "gpu": "GPU metrics",
    "bridge": "messages to chats and the robots' answers; actions on runs",
    "prometheus": "queries, targets, firing alerts",
    "alertmanager": "grouped alerts, silences",
    "grafana": "dashboards",
}
_FILES = {
    cluster.ALL: ("compose.yaml",),
    cluster.HUB: ("compose.yaml", "compose.hub.yaml"),
    cluster.AGENT: ("compose.agent.yaml",),
}
"""The files of each role."""
_SHOW = "`docker compose exec grafana cat /run/people/password`"
"""The command that shows the password of people."""
_PAGES = {"exporter": "/", "gpu": "/metrics"}


@dataclass(frozen=True)
class Containers:
    """The stack of compose.yaml; ``config`` is the configuration file, ``place`` remembers RUNS=."""

    config: Path
    place: State
    say: Say

    def up(self, runs: Path | None, *, demo: bool) -> int:
        """Render the configuration and run it in containers; return 1 if some are not healthy, else 0."""
        self.place.create()
        with self.place.lock("`make up`", self.say):  # to its end: Compose starts one after the other
            return self._up(runs, demo=demo)

    def _up(self, runs: Path | None, *, demo: bool) -> int:
        out, say = self.rendered, self.say
        config = load(self.config)
        agent.require_no_demo(config, demo=demo)
        last = self.place.runs(config.runs.path, say)
        named = runs or Path(os.environ.get("STEPWATCH_PATH") or "")
        given = named != Path()
        folder = _require_folder((named if given else last or config.runs.path).absolute())
        _require_ports(config)
        made = lifecycle.make_folder(folder)
        if config.is_hub:
            agent_users.save(config, layout.credentials(), agent_users.nodes(layout.credentials()))
        outcome = generate(self.config, out)
        self.place.remember(self.config, runs, config.runs.path, say)
        remark = lifecycle.folder_remark(made=made, remembered=not given and last is not None)
        say(f"Reading runs from {folder}{remark}")
        if demo:
            say("Reading simulated runs from the Docker volume demo-runs")
        if outcome.warning:
            say(outcome.warning)
        environment = {**of_config(config), **of_machine(CHECKOUT, folder, out)}
        if out == CHECKOUT:
            variables.update(CHECKOUT / ".env", environment)
        access = gpu_files(processes=config.gpus.processes > 0)
        optional = config.optional_parts
        project = Engine(CHECKOUT, environment, ("compose.yaml", *access), ALL)
        left = not demo and _remove_demo(project)
        unwanted = set(OPTIONAL) - set(optional)
        gone = [service.name for service in project.services() if service.name in unwanted]
        profiles = (*(("demo",) if demo else ()), *optional)
        wanted = replace(project, files=(*_FILES[config.role], *access), profiles=profiles)
        if verdict := _start(wanted, say):
            say(verdict)
            return 1
        if not config.is_agent:
            settings = out / "alertmanager/generated/alertmanager.yml"
            say(reload(f"http://{config.address('alertmanager')}", settings))
            if gone:  # not before the others know, for which its failed scrapes would be an alert
                time.sleep(_AUTO_RELOAD_SECONDS)
                project.run("rm", "--stop", "--force", *gone)
            if left:
                say(f"The demo was removed; {_end_alerts(project, config)} of its alerts have ended.")
        self._conclude(config, folder, demo=demo)
        return 0

    def down(self) -> int:
        """Remove every container; volumes, with data, silences and the password, stay."""
        services = self._project.services()
        if not services:
            self.say("Stepwatch is not running.")
            return 0
        running = {service.name for service in services if service.state == "running"}
        if running.issuperset(SIMULATIONS) and (prometheus := addresses(services).get("prometheus")):
            self._project.run("stop", "exporter", "demo-gpu")
            limit = f"at most {_UNSCRAPED_SECONDS} s"
            self.say(f"Waiting until Prometheus has seen the end of the demo: {limit}.")
            lifecycle.wait(f"http://{prometheus}", lifecycle.UNSCRAPED, _UNSCRAPED_SECONDS)
        if code := self._project.show("down", "--remove-orphans"):
            return code
        self.say("Stepwatch is down. Its data stays in Docker's volumes (`docker volume ls`).")
        return 0

    def status(self) -> int:
        """Show a table of the containers, what is wrong with them, and what fires."""
        project, rendered, say = self._project, self.rendered, self.say
        services = [each for each in project.services() if not each.done]
        if not services:
            say("Stepwatch is not running. `make up` starts it.")
            return NOT_RUNNING
        reached = addresses(services)
        agent = all(each.name != "alertmanager" for each in services)
        containers = (each.known for each in services if each.name == "exporter")
        mounts = (mount for container in containers for mount in container.get("Mounts", []))
        runs = next((mount["Source"] for mount in mounts if mount["Destination"] == _RUNS), "its folder")
        report = health(reached, runs, demo=any(each.name == "demo" for each in services))
        # On an agent two of them are reached by no one, and one is not there.
        asked = [part for part in ("prometheus", "gpu", "alertmanager") if part in reached or not agent]
        metrics = {part: f"http://{reached.get(part, '')}/metrics" for part in asked}
        texts = read_all([*metrics.values(), *report.pages])
        states = _settings_states(rendered, {part: texts[page] for part, page in metrics.items()})
        for line in table([_HEADINGS, *(_row(each, states, reached) for each in services)]):
            say(line)
        for name, state in states.items():
            for remark in settings.remarks(name, state, self.log(name)):
                say(remark)
        if not agent:
            say(f"\n{lifecycle.logins(_SHOW)}")
        if text := settings.rules_elsewhere(rendered):
            say(text)
        sound = report.show(texts, say)
        well = sound and all(each.status == "up" for each in services)
        return UP if well and set(states.values()) <= {SettingsState.CURRENT} else DEGRADED

    def demo_reset(self) -> int:
        """Restart the simulated runs and GPUs, and end their alerts, for which Prometheus restarts too."""
        config = load(self.config)
        running = {service.name for service in self._project.services() if service.state == "running"}
        if not running.issuperset(SIMULATIONS):
            self.say("The demo is not running. `make up DEMO=1` starts it.")
            return 1
        begun = time.time()
        self._project.run("restart", *SIMULATIONS)
        self.say("The simulated runs and GPUs restart from the beginning.")
        lifecycle.wait_demo_started(f"http://{config.address('prometheus')}", begun)
        count = _end_alerts(self._project, config)
        self.say(f"{count} alerts of the demo have ended. They fire again within three minutes.")
        return 0

    def journal(self, part: str) -> Callable[[], str]:
        """Return a function that reads new log lines of a part."""
        since = time.time()
        return lambda: self._project.run("logs", "--no-log-prefix", f"--since={since:.3f}", part)

    def log(self, part: str) -> str:
        """Where people read the log of a part."""
        return _log(part)

    def deployment(self, config: Config) -> Deployment:
        """What files are rendered for."""
        return containers(config)

    @property
    def rendered(self) -> Path:
        """The folder that holds ``<service>/generated``; the checkout's own belong to its config.yaml."""
        ours = self.config.resolve() == CHECKOUT / "config.yaml"
        return CHECKOUT if ours else self.place.folder / "containers"

    def password(self, address: str) -> str | None:
        """The password of our services for a server (host:port) of the stack, ``None`` for others."""
        published = addresses(self._project.services())
        for part in ("prometheus", "alertmanager"):
            if published.get(part) == address:
                return self._project.run("exec", "-T", part, "cat", InContainers.password_file).strip()
        return None

    @property
    def exists(self) -> bool:
        """Whether there are containers of it, running or not."""
        return bool(self._project.services())

    def _conclude(self, config: Config, folder: Path, *, demo: bool) -> None:
        """Print the addresses of the pages and notes about the running stack."""
        say = self.say
        say("")
        parts = published(config)
        for line in table([(part, config.link(part) + _PAGES.get(part, ""), _SHOWS[part]) for part in parts]):
            say(f"  {line}")
        if config.is_agent:
            say(f"\n{agent.where(config)}")
        else:
            say(f"\n{lifecycle.logins(_SHOW)}")
        if config.is_hub:
            say(agent.on_hub(config))
        say("Logs: docker compose logs. `make status` shows its state, `make down` stops it.")
        known = {part: config.address(part) for part in parts}
        health(known, folder, demo=demo).show_after_start(say)

    @property
    def _project(self) -> Engine:
        return Engine(CHECKOUT, profiles=ALL)


def _log(part: str) -> str:
    return f"`docker compose logs {part}`"


def _require_folder(folder: Path) -> Path:
    """A container sees a folder, not a pattern."""
    if any(sign in str(folder) for sign in "*?[") or (folder.exists() and not folder.is_dir()):
        raise EngineError(
            f"runs.path: {folder} is not a folder. Expected: a folder, which containers can mount. "
            "Fix: name the folder above, or run plain processes: `make up NATIVE=1`."
        )
    return folder


def _require_ports(config: Config) -> None:
    def may_be_docker(owner: processes.Owner | None) -> bool:
        """Docker's own processes are root's: to other users they are not shown."""
        return owner is None or "docker" in owner.command

    listening = {
        **dict.fromkeys((*published(config), "prometheus"), config.listen),
        **({"agents": config.agents.listen} if config.is_hub else {}),
    }
    asked = [(part, address, getattr(config.ports, part)) for part, address in listening.items()]
    if found := list(filter(None, (processes.port_conflict(*each, may_be_docker) for each in asked))):
        raise EngineError("\n".join(found))


def _start(project: Engine, say: Say) -> str:
    """Build and start the containers; say why some do not work, and return which; empty if all work."""
    # With an image of one's own named, nothing is built: that machine may reach no package index.
    if not os.environ.get("STEPWATCH_EXPORTER_IMAGE"):
        say("Building our image (a minute the first time).")
        project.run("build", "exporter")
    # Compose's own --wait may not end for a container that dies again and again, and fails for a Prometheus
    # that replays its log for longer than the health check waits.
    code = project.show("up", "--detach", "--remove-orphans", "--no-build")
    services = {service.name: service for service in project.services()}

    def looks(names: Iterable[str]) -> dict[str, Look]:
        now = {service.name: service for service in project.services()}

        def look(name: str) -> Look:
            if not (service := now.get(name)):
                return Look(ready=False, gone=True)
            busy = lifecycle.replay_progress(project.log(name, 50)) if name == "prometheus" else ""
            return Look(service.status == "up" or service.done, service.restarts, busy)

        return {name: look(name) for name in names}

    if code:
        waited = [name for name, service in services.items() if service.status != "up" and not service.done]
        failed = dict.fromkeys(waited, "did not start")
    else:
        ends = {name: service.restarts for name, service in services.items()}
        failed = lifecycle.wait_for_parts(services, looks, say, ends, pause=1)
    for name, reason in failed.items():
        whole = f"{reason} ({services[name].summary or services[name].state})"
        lifecycle.explain(name, whole, _log(name), project.log(name, 5), say)
    if code and not failed:
        return "docker compose up failed; its message is above"
    return lifecycle.failure_summary(failed, len(services)) if failed else ""


def _remove_demo(project: Engine) -> bool:
    """Remove the demo's containers and logs; returns whether there were any."""
    services = project.services()
    names = [service.name for service in services if service.name.startswith("demo")]
    if names:
        project.run("rm", "--stop", "--force", *names)
        # One that was killed has left its logs; and the exporter would show runs whose logs go as silent.
        project.run("run", "--rm", "--no-deps", "-T", "demo", "rm", "-rf", "/demo/demo")
        project.run("restart", "exporter")
        # A Prometheus that is replaced before it saw them go would go on with them for five minutes.
        if prometheus := addresses(services).get("prometheus"):
            lifecycle.wait(f"http://{prometheus}", lifecycle.DEMO_GONE)
    return bool(names)


def _end_alerts(project: Engine, config: Config) -> int:
    """End the alerts that the demo raised; returns how many there were."""
    project.run("restart", "prometheus")
    lifecycle.wait(f"http://{config.address('prometheus')}", lifecycle.ANSWERS)
    alertmanager = f"http://{config.address('alertmanager')}"
    return lifecycle.end_demo_alerts(alertmanager, f"demo-gpu:{CONTAINER_PORTS['gpu']}")


def health(addresses: Mapping[str, str], runs: Path | str, *, demo: bool = False) -> HealthReport:
    """The report by the parts at these addresses; ``runs`` is the folder that containers see as /runs."""
    log = f"`docker compose logs exporter` (where {_RUNS} is {runs})"
    parts = {part: addresses.get(part, "") for part in ("exporter", "alertmanager")}
    simulated = " and the Docker volume demo-runs" if demo else ""
    return HealthReport(**parts, shows=f"the runs in {runs}{simulated}", log=log)


def _settings_states(rendered: Path, pages: Mapping[str, str | None]) -> dict[str, SettingsState]:
    """How the settings of each part, by its metrics page, relate to the files."""
    files = settings.by_part(rendered)
    states = {part: settings.state_of(files[part], page) for part, page in pages.items()}
    if states.get("alertmanager") in (SettingsState.CURRENT, SettingsState.CHANGED):
        # It exports a fingerprint of its settings, so times need not be compared.
        file = rendered / "alertmanager/generated/alertmanager.yml"
        same = settings.alertmanager_runs(pages["alertmanager"], file.read_bytes())
        states["alertmanager"] = SettingsState.CURRENT if same else SettingsState.CHANGED
    return states


def _row(
    service: Service, states: Mapping[str, SettingsState], addresses: Mapping[str, str]
) -> tuple[str, ...]:
    state, up = states.get(service.name), "-"
    if service.state == "running" and service.started:
        up = duration(time.time() - service.started.timestamp())
    page = f"http://{addresses[service.name]}" if service.name in addresses else "-"
    current = state.value if state else "-"
    return (service.name, service.status, up, str(service.restarts), current, page)

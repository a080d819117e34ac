"""The state of each container of the stack; names damaged files in volumes, and moves them aside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from stepwatch.deploy.compose import engine
from stepwatch.deploy.compose.engine import Engine, Service
from stepwatch.deploy.native.status import DEGRADED, NOT_RUNNING, UP
from stepwatch.services import damage, settings
from stepwatch.services.damage import Damage
from stepwatch.services.health_report import HealthReport
from stepwatch.services.settings import SettingsState
from stepwatch.system.http_client import read_all
from stepwatch.system.terminal import Say, duration, table

_HEADINGS = ("service", "state", "up for", "restarts", "settings", "page")

FOLDERS = {"prometheus": "/prometheus", "alertmanager": "/alertmanager"}
"""Where compose.yaml mounts their volumes."""

_MOVE = 'mkdir -p "$1" && mv "$2" "$1/"'
_VOLUME = "the volume {0}-data: {1}"

_RUNS = "/runs"
"""Where the exporter's container sees the run folder."""


def status(project: Engine, rendered: Path, say: Say) -> int:
    """Show a table of the containers, what is wrong with them, and what fires.

    Args:
        project: The Compose project.
        rendered: The folder that holds ``<service>/generated``.
        say: Gets each line.

    Returns:
        0 all are well, 1 some are not, run other settings or cannot alert, 3 the stack is not running.
    """
    services = [each for each in project.services() if not each.done]
    if not services:
        say("Stepwatch is not running. `make up` starts it.")
        return NOT_RUNNING
    addresses = engine.addresses(services)
    agent = all(each.name != "door" for each in services)
    containers = (each.known for each in services if each.name == "exporter")
    mounts = (mount for container in containers for mount in container.get("Mounts", []))
    runs = next((mount["Source"] for mount in mounts if mount["Destination"] == _RUNS), "its folder")
    report = health(addresses, runs, demo=any(each.name == "demo" for each in services))
    # On an agent two of them are reached by no one, and one is not there.
    asked = [part for part in ("prometheus", "gpu", "alertmanager") if part in addresses or not agent]
    metrics = {part: f"http://{addresses.get(part, '')}/metrics" for part in asked}
    texts = read_all([*metrics.values(), *report.pages])
    states = _settings_states(rendered, {part: texts[page] for part, page in metrics.items()})
    for line in table([_HEADINGS, *(_row(each, states, addresses) for each in services)]):
        say(line)
    for name, state in states.items():
        if state is SettingsState.CHANGED:
            say(f"\n{name} runs with outdated settings. Fix: `make up`.")
        if state is SettingsState.REFUSED:
            say(f"\n{name} refused its settings; `docker compose logs {name}` says why.")
    for each in services:
        if each.status != "up" and (text := fix(project, each.name)):
            say(f"\n{text}")
    if text := settings.rules_elsewhere(rendered):
        say(text)
    sound = report.show(texts, say)
    well = sound and all(each.status == "up" for each in services)
    return UP if well and set(states.values()) <= {SettingsState.CURRENT} else DEGRADED


def health(addresses: Mapping[str, str], runs: Path | str, *, demo: bool = False) -> HealthReport:
    """The report on runs and alerts, asked of the parts at these addresses.

    ``runs`` is the folder that containers see as /runs; ``demo``: whether there are simulated runs besides.
    """
    log = f"`docker compose logs exporter` (where {_RUNS} is {runs})"
    parts = {part: addresses.get(part, "") for part in ("exporter", "alertmanager", "watchdog")}
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
    return (
        service.name,
        service.status,
        up,
        str(service.restarts),
        state.value if state else "-",
        f"http://{addresses[service.name]}" if service.name in addresses else "-",
    )


def fix(project: Engine, service: str) -> str:
    """The message about a damaged file that keeps a container from starting; empty without one."""
    found = _damaged(project, service)
    return found.fix(_VOLUME.format(service, FOLDERS[service])) if found else ""


def repair(project: Engine, say: Say) -> bool:
    """Move aside files that keep containers from starting; return whether there were any.

    Raises:
        EngineError: It cannot be moved.
    """
    failing = [each.name for each in project.services() if each.name in FOLDERS and each.status != "up"]
    found = list(filter(None, (_damaged(project, name) for name in failing)))
    for each in found:
        folder = FOLDERS[each.part]
        aside = f"{folder}/{damage.ASIDE}/{damage.stamp()}"
        project.run("stop", each.part)
        # In a container of the same image and user, since no other one sees the volume.
        container = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "sh", each.part)
        project.run(*container, "-c", _MOVE, "sh", aside, f"{folder}/{each.name}")
        place = _VOLUME.format(each.part, folder)
        say(f"Moved {place}/{each.name} to {aside} there. Nothing was deleted.")
    return bool(found)


def _damaged(project: Engine, service: str) -> Damage | None:
    if service not in FOLDERS:
        return None
    return damage.find(service, project.log(service, damage.LOG_LINES))

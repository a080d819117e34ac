"""Tells how each container of the stack is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stepwatch.deploy.compose import engine, repairing
from stepwatch.deploy.compose.engine import Engine, Service
from stepwatch.deploy.native.status import DEGRADED, NOT_RUNNING, UP
from stepwatch.services import reload, settings
from stepwatch.services.health_report import News
from stepwatch.services.settings import Standing
from stepwatch.system.http_client import read_all
from stepwatch.system.terminal import Say, duration, table

_HEADINGS = ("service", "state", "up for", "restarts", "settings", "page")

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
    demo = any(each.name == "demo" for each in services)
    report = news(addresses, _run_folder(services), demo=demo)
    metrics = [f"http://{addresses.get(part, '')}/metrics" for part in ("prometheus", "gpu", "alertmanager")]
    texts = read_all([*metrics, *report.pages])
    standings = _standings(rendered, *(texts[page] for page in metrics))
    for line in table([_HEADINGS, *(_row(each, standings, addresses) for each in services)]):
        say(line)
    _tell_settings(standings, say)
    for each in services:
        if each.standing != "up" and (fix := repairing.fix(project, each.name)):
            say(f"\n{fix}")
    sound = report.tell(texts, say)
    well = sound and all(each.standing == "up" for each in services)
    return UP if well and set(standings.values()) <= {Standing.CURRENT} else DEGRADED


def news(addresses: Mapping[str, str], runs: Path | str, *, demo: bool = False) -> News:
    """Who can be asked for news, by service.

    ``runs`` is the folder that containers see as /runs; ``demo``: whether there are simulated runs besides.
    """
    log = f"`docker compose logs exporter` (where {_RUNS} stands for {runs})"
    parts = {part: addresses.get(part, "") for part in ("exporter", "alertmanager", "watchdog")}
    simulated = " and the Docker volume demo-runs" if demo else ""
    return News(**parts, shows=f"the runs in {runs}{simulated}", log=log)


def _run_folder(services: Sequence[Service]) -> str:
    containers = (each.known for each in services if each.name == "exporter")
    mounts = (mount for container in containers for mount in container.get("Mounts", []))
    return next((mount["Source"] for mount in mounts if mount["Destination"] == _RUNS), "its folder")


def _standings(
    rendered: Path, prometheus: str | None, gpu: str | None, alertmanager: str | None
) -> dict[str, Standing]:
    """How the settings of each part, by its metrics page, relate to the files."""
    files = settings.by_part(rendered)
    return {
        "prometheus": settings.standing(files["prometheus"], prometheus),
        "gpu": settings.standing(files["gpu"], gpu),
        "alertmanager": _alertmanager(alertmanager, rendered),
    }


def _alertmanager(page: str | None, rendered: Path) -> Standing:
    """It tells a fingerprint of what it runs, so that times need not be believed."""
    present = settings.loaded(settings.by_part(rendered)["alertmanager"], page)
    if present is None:
        return Standing.UNKNOWN
    if not present.successful:
        return Standing.REFUSED
    same = reload.runs(page, rendered / "alertmanager/generated/alertmanager.yml")
    return Standing.CURRENT if same else Standing.CHANGED


def _row(
    service: Service, standings: Mapping[str, Standing], addresses: Mapping[str, str]
) -> tuple[str, ...]:
    standing = standings.get(service.name)
    return (
        service.name,
        service.standing,
        _uptime(service),
        str(service.restarts),
        standing.value if standing else "-",
        f"http://{addresses[service.name]}" if service.name in addresses else "-",
    )


def _uptime(service: Service) -> str:
    if service.state != "running" or not service.started:
        return "-"
    return duration(time.time() - service.started.timestamp())


def _tell_settings(standings: dict[str, Standing], say: Say) -> None:
    for name, standing in standings.items():
        if standing is Standing.CHANGED:
            say(f"\nThe settings of {name} were rendered again since it read them: `make up`.")
        if standing is Standing.REFUSED:
            say(f"\n{name} refused its settings; `docker compose logs {name}` says why.")

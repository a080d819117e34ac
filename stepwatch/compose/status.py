"""Tells how each container of the stack is."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from stepwatch import firing, reload, settings
from stepwatch.compose import engine
from stepwatch.compose.engine import Engine, Service
from stepwatch.config import Config
from stepwatch.settings import Settings, Standing
from stepwatch.tables import duration, table

UP, DEGRADED, NOT_RUNNING = 0, 1, 3

Say = Callable[[str], None]

_HEADINGS = ("service", "state", "up for", "restarts", "settings", "page")


def status(project: Engine, config: Config, rendered: Path, say: Say) -> int:
    """Show a table of the containers, what is wrong with them, and what fires.

    Args:
        project: The Compose project.
        config: What the stack should run.
        rendered: The folder that holds ``<service>/generated``.
        say: Gets each line.

    Returns:
        0 all are well, 1 some are not or run other settings, 3 the stack is not running.
    """
    services = [each for each in project.services() if not each.done]
    if not services:
        say("Stepwatch is not running. `make up` starts it.")
        return NOT_RUNNING
    standings = _standings(config, rendered)
    for line in table([_HEADINGS, *(_row(each, config, standings) for each in services)]):
        say(line)
    _tell_settings(standings, say)
    if alerts := firing.firing(config.address("alertmanager")):
        say("\n  ".join(["\nFiring:", *alerts]))
    well = all(each.standing == "up" for each in services)
    return UP if well and set(standings.values()) <= {Standing.CURRENT} else DEGRADED


def _standings(config: Config, rendered: Path) -> dict[str, Standing]:
    prometheus = Settings(
        str(rendered / "prometheus/generated"), ("prometheus.yml", "rules/*"), "prometheus_config_last_reload"
    )
    return {
        "prometheus": settings.standing(prometheus, f"http://{config.address('prometheus')}/metrics"),
        "alertmanager": _alertmanager(config, rendered),
    }


def _alertmanager(config: Config, rendered: Path) -> Standing:
    """It tells a fingerprint of what it runs, so that times need not be believed."""
    url = f"http://{config.address('alertmanager')}"
    present = settings.loaded(Settings("", (), "alertmanager_config_last_reload"), f"{url}/metrics")
    if present is None:
        return Standing.UNKNOWN
    if not present.successful:
        return Standing.REFUSED
    same = reload.runs(url, rendered / "alertmanager/generated/alertmanager.yml")
    return Standing.CURRENT if same else Standing.CHANGED


def _row(service: Service, config: Config, standings: dict[str, Standing]) -> tuple[str, ...]:
    known, standing = engine.inspect(service.container), standings.get(service.name)
    return (
        service.name,
        service.standing,
        _uptime(known) if service.state == "running" else "-",
        str(known.get("RestartCount", "-")),
        standing.value if standing else "-",
        config.link(service.name) if service.published else "-",
    )


def _uptime(container: dict[str, Any]) -> str:
    started = container.get("State", {}).get("StartedAt", "")[:19]
    if not started:
        return "-"
    return duration(time.time() - datetime.fromisoformat(f"{started}+00:00").timestamp())


def _tell_settings(standings: dict[str, Standing], say: Say) -> None:
    for name, standing in standings.items():
        if standing is Standing.CHANGED:
            say(f"\nThe settings of {name} were rendered again since it read them: `make up`.")
        if standing is Standing.REFUSED:
            say(f"\n{name} refused its settings; `docker compose logs {name}` says why.")

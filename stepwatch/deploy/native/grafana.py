"""Grafana, if this machine has it: a stack without it has every alert and no dashboards."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config
from stepwatch.programs.programs import read_version


@dataclass(frozen=True)
class Grafana:
    """An installed Grafana: how its server is started, and the folder with its own files."""

    command: tuple[str, ...]
    home: Path


def find() -> Grafana | None:
    """Grafana 10 or later from PATH, ``None`` if there is none."""
    for name, subcommand in (("grafana", ("server",)), ("grafana-server", ())):
        if not (program := shutil.which(name)):
            continue
        # An unpacked release holds bin/grafana; a package has its files below /usr/share.
        for home in (Path(program).resolve().parent.parent, Path("/usr/share/grafana")):
            new_enough = (read_version(Path(program)) or (0, 0, 0)) >= (10, 0, 0)
            if (home / "conf/defaults.ini").exists() and new_enough:
                return Grafana((program, *subcommand), home)
    return None


def environment(config: Config, rendered: Path, data: Path) -> dict[str, str]:
    """Its settings, as the variables that it reads: no one signs up, and it reports to no one."""
    return {
        "GF_PATHS_DATA": str(data),
        "GF_PATHS_LOGS": str(data / "log"),
        "GF_PATHS_PLUGINS": str(data / "plugins"),
        "GF_PATHS_PROVISIONING": str(rendered / "grafana/generated/provisioning"),
        "GF_LOG_MODE": "console",
        "GF_SERVER_HTTP_ADDR": config.listen,
        "GF_SERVER_HTTP_PORT": str(config.ports.grafana),
        "GF_SERVER_ROOT_URL": f"{config.link('grafana')}/",
        "GF_AUTH_ANONYMOUS_ENABLED": "false",
        "GF_USERS_ALLOW_SIGN_UP": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(rendered / "grafana/generated/dashboards/runs.json"),
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_SECURITY_DISABLE_GRAVATAR": "true",
        # Grafana puts the content of the file here; it counts when the database is made.
        "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{password(data)}}}",
        # What the provisioning files ask for.
        "STEPWATCH_PROMETHEUS_URL": f"http://{config.address('prometheus')}",
        "STEPWATCH_ALERTMANAGER_URL": f"http://{config.address('alertmanager')}",
        "STEPWATCH_DASHBOARDS": str(rendered / "grafana/generated/dashboards"),
    }


def password(data: Path) -> Path:
    """The file with the administrator's password, made once and readable by its owner only."""
    file = data.with_name("grafana-password")
    if not file.exists():
        data.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as fresh:
            fresh.write(secrets.token_urlsafe(18))
    return file

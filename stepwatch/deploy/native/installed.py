"""What this machine has already: Grafana, node_exporter, and an Alertmanager that may be too old."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from stepwatch.config import Config
from stepwatch.deploy.native import supervisord
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system import http_client, processes
from stepwatch.system.programs import Program, read_version, written


@dataclass(frozen=True)
class Grafana:
    """An installed Grafana: how its server is started, and the folder with its own files."""

    command: tuple[str, ...]
    home: Path


_NODE_EXPORTER = ("node_exporter", "prometheus-node-exporter")


def find_grafana() -> Grafana | None:
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


def grafana_environment(config: Config, place: State, data: Path) -> dict[str, str]:
    """Its settings, as the variables that it reads: no one signs up, and it reports to no one."""
    rendered = place.rendered
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
        "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{place.password}}}",
        # What the provisioning files ask for.
        "STEPWATCH_PROMETHEUS_URL": f"http://{config.address('prometheus')}",
        "STEPWATCH_ALERTMANAGER_URL": f"http://{config.address('alertmanager')}",
        "STEPWATCH_DASHBOARDS": str(rendered / "grafana/generated/dashboards"),
    }


def require_bare(config: Config, alertmanager: Program) -> None:
    """Refuse mail passwords with white space around them, if this Alertmanager would send that along."""
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
    return next(map(Path, filter(None, map(shutil.which, _NODE_EXPORTER))), None)


def serves_already(config: Config, place: State) -> bool:
    """Whether a node_exporter that is not ours, as the distribution's service, answers on its port."""
    if not processes.port_taken(config.listen, config.ports.node):
        return False
    owner = processes.port_owner(config.ports.node)
    if owner and supervisord.owns(place, owner.pid):
        return False
    # It waits five seconds itself for a file system that hangs, and may be slower on a busy machine.
    if page := http_client.read(f"http://{config.address('node')}/metrics", timeout=20):
        return "\nnode_exporter_build_info{" in page
    return owner is not None and Path(owner.command.partition(" ")[0]).name in _NODE_EXPORTER

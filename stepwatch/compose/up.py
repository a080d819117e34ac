"""From config.yaml to running containers: what `make up` does where a Docker daemon answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stepwatch.compose import engine
from stepwatch.compose.engine import Engine, EngineError
from stepwatch.compose.variables import PUBLISHED, variables
from stepwatch.config import Config, load
from stepwatch.generate import CHECKOUT, generate
from stepwatch.native import ports
from stepwatch.native.state import State
from stepwatch.reload import reload
from stepwatch.tables import table

Say = Callable[[str], None]

_SHOWS = {
    "exporter": "what is read from the runs",
    "gpu": "what is read from the GPUs",
    "prometheus": "queries, targets and every alert that fires",
    "alertmanager": "alerts in groups, silences",
    "grafana": "dashboards; user admin, password below",
}


def up(config: Path, runs: Path | None, place: State, say: Say, *, demo: bool) -> int:
    """Render the configuration and have containers run it.

    Args:
        config: The configuration file.
        runs: The folder to read runs from, in place of the file's `runs.path`.
        place: Where the last RUNS= is remembered.
        say: Gets each line of progress.
        demo: Whether the simulated trainers and GPUs are to run.

    Returns:
        0 when every container is healthy, 1 when some are not.

    Raises:
        Refused: The configuration is wrong or a port is in use; what was running runs on as it was.
    """
    settings = load(config)
    folder = _run_folder(runs or place.runs() or settings.runs.path)
    _require_ports(settings)
    out = rendered(config, place)
    generate(config, out)
    place.remember_runs(runs)
    say(f"Reading runs from {folder}; the stack runs in containers.")
    project = Engine(CHECKOUT, variables(settings, folder, out), _files(), ("demo",))
    if not demo:
        _remove_demo(project)
    if _start(project if demo else replace(project, profiles=()), say):
        _tell_failures(project, say)
        return 1
    say(reload(f"http://{settings.address('alertmanager')}", out / "alertmanager/generated/alertmanager.yml"))
    _tell(settings, say)
    return 0


def rendered(config: Path, place: State) -> Path:
    """The folder that holds ``<service>/generated``; the checkout's own belong to its config.yaml."""
    ours = config.resolve() == CHECKOUT / "config.yaml"
    return CHECKOUT if ours else place.folder / "containers"


def _run_folder(path: Path) -> Path:
    """The folder to mount; a container sees a folder, not a pattern."""
    folder = path.absolute()
    if any(sign in str(folder) for sign in "*?[") or (folder.exists() and not folder.is_dir()):
        raise EngineError(
            f"runs.path: {folder} is no folder. Expected: a folder, which containers can mount. "
            "Cure: name the folder above, or run plain processes: `make up NATIVE=1`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _files() -> tuple[str, ...]:
    return ("compose.yaml", "compose.gpu.yaml") if engine.has_gpus() else ("compose.yaml",)


def _require_ports(config: Config) -> None:
    problems = []
    for part in PUBLISHED:
        port = getattr(config.ports, part)
        owner = ports.owner(port) if ports.taken(config.listen, port) else None
        if owner and "docker" not in owner.command:
            problems.append(
                f"ports.{part}: {port} is in use by {owner}. Cure: stop that process "
                f"(`make down` for a stack of plain processes), or set ports.{part} in config.yaml."
            )
    if problems:
        raise EngineError("\n".join(problems))


def _remove_demo(project: Engine) -> None:
    names = [service.name for service in project.services() if service.name.startswith("demo")]
    if names:
        project.tell("rm", "--stop", "--force", *names)
        # It would remember runs whose logs are gone as silent ones.
        project.tell("restart", "exporter")


def _start(project: Engine, say: Say) -> int:
    # With an image of one's own named, nothing is built: that machine may reach no package index.
    if not os.environ.get("STEPWATCH_EXPORTER_IMAGE"):
        say("Building our image, which takes a minute the first time.")
        project.tell("build", "exporter")
    return project.show("up", "--detach", "--wait", "--remove-orphans", "--no-build")


def _tell_failures(project: Engine, say: Say) -> None:
    for service in project.services():
        if service.standing != "up" and not service.done:
            log = project.tell("logs", "--no-log-prefix", "--tail=5", service.name).splitlines()
            say(
                "\n  ".join([f"{service.name}: {service.summary or service.state}. Its log ends with:", *log])
            )


def _tell(config: Config, say: Say) -> None:
    say("")
    rows = [
        (part, config.link(part) + ("/metrics" if part in ("exporter", "gpu") else ""), _SHOWS[part])
        for part in PUBLISHED
    ]
    for line in table(rows):
        say(f"  {line}")
    say("\nGrafana's password: docker compose exec grafana cat /run/stepwatch/grafana-password")
    say("Logs: docker compose logs. `make status` tells how it is, `make down` stops it.")

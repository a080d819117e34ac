"""From config.yaml to running containers: what `make up` does where a Docker daemon answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.deploy.compose import gpus, repairing
from stepwatch.deploy.compose.demo import end_demo, remove_demo
from stepwatch.deploy.compose.engine import Engine, EngineError
from stepwatch.deploy.compose.status import news
from stepwatch.deploy.native.state import State
from stepwatch.render import output, variables
from stepwatch.render.generator import generate
from stepwatch.render.variables import PUBLISHED, of_config, of_machine
from stepwatch.services import damage, run_folder, startup
from stepwatch.services.reload import reload
from stepwatch.services.startup import Look, Startup
from stepwatch.system import ports
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.terminal import Say, table

_SHOWS = {
    "exporter": "how runs are, their curves",
    "gpu": "what is read from the GPUs",
    "watchdog": "what keeps the stack from alerting",
    "prometheus": "queries, targets and every alert that fires",
    "alertmanager": "alerts in groups, silences",
    "grafana": "dashboards; user admin, password below",
}
_PAGES = {"exporter": "/", "gpu": "/metrics", "watchdog": "/api/v1/findings"}


def up(config: Path, runs: Path | None, place: State, say: Say, *, demo: bool, repair: bool) -> int:
    """Render the configuration and have containers run it.

    Args:
        config: The configuration file.
        runs: The folder to read runs from, in place of the file's `runs.path`.
        place: Where the last RUNS= is remembered.
        say: Gets each line of progress.
        demo: Whether the simulated trainers and GPUs are to run.
        repair: Whether to move damaged files aside that keep a container from starting.

    Returns:
        0 when every container is healthy, 1 when some are not.

    Raises:
        Refused: The configuration is wrong or a port is in use; what was running runs on as it was.
    """
    place.create()
    with place.lock("`make up`", say):  # to its end: Compose starts one container after the other
        return _up(config, runs, place, say, demo=demo, repair=repair)


def _up(config: Path, runs: Path | None, place: State, say: Say, *, demo: bool, repair: bool) -> int:
    out = rendered(config, place)
    output.recover(out)
    settings = load(config)
    folder, remembered = _run_folder(settings, runs, place, say)
    _require_ports(settings)
    made = run_folder.make(folder)
    outcome = generate(config, out)
    place.remember(config, runs, settings.runs.path, say)
    say(f"Reading runs from {folder}{run_folder.remark(made=made, remembered=remembered)}")
    if demo:
        say("Reading simulated runs from the Docker volume demo-runs")
    if outcome.warning:
        say(outcome.warning)
    project = _project(settings, folder, out)
    left = not demo and remove_demo(project)
    wanted = project if demo else replace(project, profiles=())
    moved = False
    while (verdict := _start(wanted, say)) and repair and repairing.repair(wanted, say):
        moved = True
    if repair and not moved:
        say(damage.NOTHING)
    if verdict:
        say(verdict)
        return 1
    say(reload(f"http://{settings.address('alertmanager')}", out / "alertmanager/generated/alertmanager.yml"))
    if left:
        end_demo(project, settings, say)
    _tell(settings, say)
    news({part: settings.address(part) for part in PUBLISHED}, folder, demo=demo).tell_after_up(say)
    return 0


def rendered(config: Path, place: State) -> Path:
    """The folder that holds ``<service>/generated``; the checkout's own belong to its config.yaml."""
    ours = config.resolve() == CHECKOUT / "config.yaml"
    return CHECKOUT if ours else place.folder / "containers"


def _run_folder(config: Config, runs: Path | None, place: State, say: Say) -> tuple[Path, bool]:
    """The folder to mount, and whether it is the one that RUNS= named last time."""
    named = runs or Path(os.environ.get("STEPWATCH_PATH") or "")
    last = place.runs(config.runs.path, say)
    if named != Path():
        return _require_folder(named.absolute()), False
    return _require_folder((last or config.runs.path).absolute()), last is not None


def _require_folder(folder: Path) -> Path:
    """A container sees a folder, not a pattern."""
    if any(sign in str(folder) for sign in "*?[") or (folder.exists() and not folder.is_dir()):
        raise EngineError(
            f"runs.path: {folder} is not a folder. Expected: a folder, which containers can mount. "
            "Fix: name the folder above, or run plain processes: `make up NATIVE=1`."
        )
    return folder


def _project(config: Config, folder: Path, out: Path) -> Engine:
    environment = {**of_config(config), **of_machine(CHECKOUT, folder, out)}
    if out == CHECKOUT:
        variables.update(CHECKOUT / ".env", environment)
    files = ("compose.yaml", *gpus.files(processes=config.gpus.processes > 0))
    return Engine(CHECKOUT, environment, files, ("demo",))


def _require_ports(config: Config) -> None:
    problems = [
        ports.conflict(part, config.listen, getattr(config.ports, part), _may_be_docker) for part in PUBLISHED
    ]
    if found := list(filter(None, problems)):
        raise EngineError("\n".join(found))


def _may_be_docker(owner: ports.Owner | None) -> bool:
    """Docker's own processes are root's: to other users they are not shown."""
    return owner is None or "docker" in owner.command


def _start(project: Engine, say: Say) -> str:
    """Build and start the containers; say why some do not work, and return which; empty if all work."""
    # With an image of one's own named, nothing is built: that machine may reach no package index.
    if not os.environ.get("STEPWATCH_EXPORTER_IMAGE"):
        say("Building our image (a minute the first time).")
        project.tell("build", "exporter")
    # Compose's own --wait may not end for a container that dies again and again, and fails for a Prometheus
    # that replays its log for longer than the health check waits.
    code = project.show("up", "--detach", "--remove-orphans", "--no-build")
    services = {service.name: service for service in project.services()}
    if code:
        waited = [name for name, service in services.items() if service.standing != "up" and not service.done]
        failed = dict.fromkeys(waited, "did not start")
    else:
        ends = {name: service.restarts for name, service in services.items()}
        failed = Startup(partial(_looks, project), say, ends, pause=1).wait(services)
    for name, reason in failed.items():
        whole = f"{reason} ({services[name].summary or services[name].state})"
        fix = repairing.fix(project, name)
        for line in startup.failure(
            name, whole, f"`docker compose logs {name}`", _log(project, name, 5), fix
        ):
            say(line)
    if code and not failed:
        return "docker compose up failed; its message is above"
    return startup.verdict(failed, len(services)) if failed else ""


def _looks(project: Engine, names: Iterable[str]) -> dict[str, Look]:
    services = {service.name: service for service in project.services()}
    return {
        name: Look(
            ready=services[name].standing == "up" or services[name].done,
            ends=services[name].restarts,
            busy=startup.replay(_log(project, name, 50)) if name == "prometheus" else "",
        )
        if name in services
        else Look(ready=False, gone=True)
        for name in names
    }


def _log(project: Engine, service: str, lines: int) -> list[str]:
    return project.tell("logs", "--no-log-prefix", f"--tail={lines}", service).splitlines()


def _tell(config: Config, say: Say) -> None:
    say("")
    rows = [(part, config.link(part) + _PAGES.get(part, ""), _SHOWS[part]) for part in PUBLISHED]
    for line in table(rows):
        say(f"  {line}")
    say("\nGrafana's password: docker compose exec grafana cat /run/stepwatch/grafana-password")
    say("Logs: docker compose logs. `make status` shows its state, `make down` stops it.")

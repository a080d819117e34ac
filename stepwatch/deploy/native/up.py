"""From config.yaml to a running stack: what `make up` does, in order."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from stepwatch.config import Config, load
from stepwatch.deploy.native import grafana, supervision
from stepwatch.deploy.native.demo import end_demo
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.stack import Stack
from stepwatch.deploy.native.state import StackError, State
from stepwatch.deploy.native.status import news
from stepwatch.programs.programs import Program, obtain, written
from stepwatch.render import output
from stepwatch.render.generator import generate
from stepwatch.services import run_folder
from stepwatch.system import http_client, ports, processes
from stepwatch.system.terminal import Say, table

_TRIMS = (0, 27, 0)


def require_bare(config: Config, alertmanager: Program) -> None:
    """Check that mail passwords have nothing around them, if this Alertmanager would send that along.

    Raises:
        StackError: names the first file that has.
    """
    for receiver in config.receivers:
        path = receiver.mail.password_file if receiver.mail else None
        if path and alertmanager.version < _TRIMS and not _bare(path):
            raise StackError(
                f"receivers: {receiver.name}: mail.password_file: {path} ends with a line end or a space, "
                f"and Alertmanager {written(alertmanager.version)} takes that for a part of it. Expected: "
                f"nothing but the password. Fix: printf %s PASSWORD > {path}, or Alertmanager 0.27 or later."
            )


def _bare(path: Path) -> bool:
    content = path.read_bytes()
    return content == content.strip()


_NAMES = ("node_exporter", "prometheus-node-exporter")


def find() -> Path | None:
    """The program from PATH, ``None`` if there is none; it is never downloaded."""
    return next((Path(path) for path in map(shutil.which, _NAMES) if path), None)


def serves_already(config: Config, place: State) -> bool:
    """Whether one that is not ours, as the distribution's service, answers on the port for it."""
    if not ports.taken(config.listen, config.ports.node):
        return False
    owner = ports.owner(config.ports.node)
    if owner and processes.belongs(owner.pid, place.mark):
        return False
    return "\nnode_exporter_build_info{" in (
        http_client.read(f"http://{config.address('node')}/metrics") or ""
    )


def up(
    config: Path,
    runs: Path | None,
    place: State,
    say: Say,
    *,
    demo: bool = False,
    as_service: bool = False,
    repair: bool = False,
) -> int:
    """Render the configuration and have the stack run it.

    Args:
        config: The configuration file.
        runs: The folder or glob to read runs from, in place of the file's `runs.path`.
        place: Where the stack keeps what it writes.
        say: Gets each line of progress.
        demo: Whether simulated runs and GPUs are part of it; those of an earlier time go.
        as_service: Whether systemd is to start the stack from now on.
        repair: Whether to move damaged files aside that keep a part from starting.

    Returns:
        0 when every part is ready, 1 when some are not.

    Raises:
        Refused: The configuration is wrong, a program is missing, a port is in use; a stack that
            was running runs on as it was.
    """
    place.create()
    with place.lock("`make up`", say):
        output.recover(rendered := place.folder / "rendered")
        settings = load(config)
        remembered = None if runs else place.runs(settings.runs.path, say)
        stack = Stack(
            config=settings,
            rendered=rendered,
            place=place,
            runs=(runs or remembered or settings.runs.path).absolute(),
            demo=demo,
        )
        parts, targets = _parts(stack, say)
        supervision.require_ports(parts, place)
        made = run_folder.make(stack.runs)
        outcome = generate(config, stack.rendered, place=partial(place.deployment, parts=targets))
        remark = run_folder.remark(made=made, remembered=bool(remembered))
        place.remember(config, runs, settings.runs.path, say)
        place.make_password()
        say(f"Reading runs from {stack.runs}{remark}")
        if demo:
            say(f"Reading simulated runs from {stack.simulated}/demo")
        if outcome.warning:
            say(outcome.warning)
        fresh = supervision.start(parts, place, say, as_service=as_service)
    if supervision.settle(parts, fresh, place, say, repair=repair):
        return 1  # the last line says which parts failed
    if not demo and stack.simulated.exists():
        shutil.rmtree(stack.simulated, ignore_errors=True)
        with place.lock("`make up`", say):
            end_demo(place, say)
    _tell(parts, place, say)
    news(parts, place).tell_after_up(say)
    return 0


def _parts(stack: Stack, say: Say) -> tuple[list[Part], frozenset[str]]:
    """What to run, and the names of all that Prometheus can read."""
    prometheus, alertmanager = obtain("prometheus", say), obtain("alertmanager", say)
    require_bare(stack.config, alertmanager)
    served = serves_already(stack.config, stack.place)
    if served:
        say(f"node_exporter: the one that serves on port {stack.config.ports.node} already")
    parts = stack.parts(prometheus, alertmanager, grafana.find(), None if served else find())
    return parts, frozenset({part.name for part in parts} | ({"node"} if served else set()))


def _tell(parts: Iterable[Part], place: State, say: Say) -> None:
    say("")
    for line in table([(part.name, part.url, part.shows) for part in parts]):
        say(f"  {line}")
    say("")
    if not any(part.name == "grafana" for part in parts):
        say("Grafana 10 or later is not on PATH: the exporter's page shows the runs all the same.")
    say(f"Logs are in {place.logs}. `make status` shows its state, `make down` stops it.")

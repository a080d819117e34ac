"""From config.yaml to a running stack: what `make up` does, in order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stepwatch.config import load
from stepwatch.generate import CHECKOUT, generate
from stepwatch.native import grafana, supervision
from stepwatch.native.errors import StackError
from stepwatch.native.part import Part
from stepwatch.native.readiness import Say
from stepwatch.native.stack import Stack
from stepwatch.native.state import State
from stepwatch.programs import obtain


def up(config: Path, runs: Path | None, place: State, say: Say) -> int:
    """Render the configuration and have the stack run it.

    Args:
        config: The configuration file.
        runs: The folder or glob to read runs from, in place of the file's `runs.path`.
        place: Where the stack keeps what it writes.
        say: Gets each line of progress.

    Returns:
        0 when every part is ready, 1 when some are not.

    Raises:
        Refused: The configuration is wrong, a program is missing, a port is in use; a stack that
            was running runs on as it was.
    """
    stack = Stack(
        config=(settings := load(config)),
        checkout=CHECKOUT,
        rendered=_rendered(config, place),
        place=place,
        runs=(runs or place.runs() or Path(settings.runs.path)).absolute(),
    )
    parts = stack.parts(obtain("prometheus"), obtain("alertmanager"), grafana.find())
    supervision.require_ports(parts, place)
    made = _make_folder(stack.runs)
    generate(config, stack.rendered)
    remark = _remark(made=made, remembered=runs is None and place.runs() is not None)
    place.remember_runs(runs)
    say(f"Reading runs from {stack.runs}{remark}")
    code = supervision.bring_up(parts, place, say)
    _tell(parts, place, say)
    return code


def _rendered(config: Path, place: State) -> Path:
    # The checkout's generated/ belongs to its config.yaml; another file must not overwrite it.
    return CHECKOUT if config.resolve() == CHECKOUT / "config.yaml" else place.folder / "rendered"


def _remark(*, made: bool, remembered: bool) -> str:
    if made:
        return ", which did not exist and is empty"
    return ", as RUNS= said last time (RUNS=folder changes it)" if remembered else ""


def _make_folder(runs: Path) -> bool:
    """Make the folder if it is missing; returns whether it was."""
    if any(sign in str(runs) for sign in "*?[") or runs.is_dir():
        return False
    try:
        runs.mkdir(parents=True)
    except OSError as problem:
        raise StackError(
            f"runs.path: {runs}: {problem.strerror}. Expected: a folder. "
            "Cure: name the folder that your runs write to, `make up RUNS=folder`."
        ) from None
    return True


def _tell(parts: Iterable[Part], place: State, say: Say) -> None:
    rows = [(part.name, part.url, part.shows) for part in parts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    say("")
    for row in rows:
        say("  " + "  ".join(map(str.ljust, row, widths)).rstrip())
    say("")
    if not any(part.name == "grafana" for part in parts):
        say("Grafana 10 or later is not on PATH: no dashboards. Install it and run `make up` again.")
    say(f"Logs are in {place.logs}. `make status` tells how it is, `make down` stops it.")

"""The command that renders config.yaml for Prometheus, Alertmanager and Grafana."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from exporter.installation import adapt
from stepwatch.deploy.native.state import State
from stepwatch.render import variables
from stepwatch.render.generator import Outcome, generate, stale
from stepwatch.render.layout import STATE
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT

if TYPE_CHECKING:
    from stepwatch.deploy.container_targets import Found

DONE, STALE, REFUSED = 0, 1, 2
LEFT_OUT = 1
SHOWN_CHANGES = 12

# What a file that differs means to anyone who generates, and to anyone who only checks.
_DONE_WORDS = {"missing": "new", "different": "changed", "orphan": "deleted"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 done; 1 stale files (`--check`) or a container refused (`--discover`); 2 refused."""
    options = _parser().parse_args(arguments)
    try:
        if options.discover:
            from stepwatch.deploy.container_targets import discover  # noqa: PLC0415  (a client of Docker: rendering needs none)

            return _report_found(*discover(State.chosen(STATE)))
        if options.check:
            changes = stale(options.config, options.out, templates=CHECKOUT)
            if not changes:
                return DONE
            lines = [f"{kind} {path}" for kind, path in changes]
            _say(sys.stdout, [*lines, "The files above are stale. Fix: run python generate.py."])
            return STALE
        outcome = generate(options.config, options.out, templates=CHECKOUT)
        _report(outcome)
        if (options.config, options.out) == (CHECKOUT / "config.yaml", CHECKOUT):
            # The ports and links of this configuration, for a bare `docker compose`.
            variables.update(CHECKOUT / ".env", variables.of_config(outcome.config))
        if options.reload is not None:
            from stepwatch.services.settings import reload  # noqa: PLC0415  (an HTTP client, which takes its time to load)

            _sign_in(options.config)
            address = options.reload or f"http://{outcome.config.address('alertmanager')}"
            file = options.out / "alertmanager/generated/alertmanager.yml"
            _say(sys.stdout, [reload(address, file)])
    except Refused as refusal:
        _say(sys.stderr, [str(refusal)])
        return REFUSED
    return DONE


def _sign_in(config: Path) -> None:
    """Sign in to Alertmanager with the password of the running stack, or as this container sees it."""
    from stepwatch.config.deployment import InContainers  # noqa: PLC0415  (rendering needs none of these)
    from stepwatch.deploy import backend  # noqa: PLC0415
    from stepwatch.system import http_client  # noqa: PLC0415

    file = Path(InContainers.password_file)
    if file.exists():
        http_client.sign_in(lambda _: file.read_text(encoding="ascii").strip())
    else:
        backend.sign_in(config, State.chosen(STATE), lambda _: None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="generate.py", description="Render config.yaml for Prometheus, Alertmanager and Grafana."
    )
    parser.add_argument("--config", type=Path, default=CHECKOUT / "config.yaml", help="the file to render")
    parser.add_argument(
        "--out",
        type=Path,
        default=CHECKOUT,
        help="the folder that gets <service>/generated (default: %(default)s)",
    )
    parser.add_argument(
        "--reload",
        metavar="URL",
        nargs="?",
        const="",
        help="reload Alertmanager (at this address, or that of config.yaml)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="write nothing; exit 1 if files are stale")
    instead.add_argument(
        "--discover",
        choices=("docker",),
        help="render nothing; let Prometheus scrape the running containers labelled stepwatch.scrape=PORT",
    )
    return parser


def _report(outcome: Outcome) -> None:
    lines = [f"{_DONE_WORDS[kind]} {path}" for kind, path in outcome.changes]
    summary = (
        f"{outcome.files} files, {len(lines)} changed."
        if lines
        else f"{outcome.files} files, all up to date."
    )
    _say(sys.stdout, [*_few(lines), *outcome.checks, summary])
    if outcome.warning:
        _say(sys.stderr, [outcome.warning])


def _report_found(file: Path, found: "Found") -> int:
    _say(
        sys.stdout,
        [*_few([str(target) for target in found.targets]), f"{len(found.targets)} targets in {file}."],
    )
    _say(sys.stderr, _few([*found.faults]))
    return LEFT_OUT if found.faults else DONE


def _few(lines: list[str]) -> list[str]:
    if len(lines) <= SHOWN_CHANGES:
        return lines
    return [*lines[:SHOWN_CHANGES], f"... and {len(lines) - SHOWN_CHANGES} more"]


def _say(stream: TextIO, lines: Iterable[str]) -> None:
    try:
        stream.writelines(adapt(f"{line}\n") for line in lines)
        stream.flush()
    except BrokenPipeError:  # `generate.py | head`: no one reads on, but the work must be done
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""``python -m stepwatch up|down|status|...``: what users do with the stack, whatever it runs in."""

from __future__ import annotations

from exporter import interrupt

if __name__ == "__main__":
    interrupt.end_at_once()  # first of all: the modules below take a second

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter.installation import INSTALLED, adapt
from stepwatch import generate
from stepwatch.alerts.catalogue import key
from stepwatch.backtest.command import add_options, backtest
from stepwatch.config import Config, load
from stepwatch.config.reference import defaults, explain
from stepwatch.deploy import backend
from stepwatch.deploy.native.state import State
from stepwatch.deploy.native.status import NOT_RUNNING
from stepwatch.operate.gpu_release import USUAL, gpu_release
from stepwatch.operate.inspection import inspect
from stepwatch.operate.limits_report import alerts, unmatched
from stepwatch.operate.mark import mark
from stepwatch.operate.silence import silence
from stepwatch.render import layout
from stepwatch.render.generator import instead_of_usual, pending
from stepwatch.schema.errors import Refused
from stepwatch.testalert.command import send_test


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done and well; 1 something does not work; 2 refused, nothing was touched; 3 (`status`) the
        stack is not running; 130 interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except Refused as refusal:
        sys.stderr.write(adapt(f"{refusal}\n"))
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(adapt("Interrupted. `make status` shows what runs.\n"))
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command in ("config", "discover", "inspect", "backtest"):
        return _without_stack(options)
    place = State.chosen(layout.STATE)
    if options.command == "up":
        if options.config is None:
            layout.write_config(_say)
        file = options.config or layout.CONFIG
        stack = backend.to_start(file, place, _say, native=options.native, as_service=options.service)
        code = stack.up(options.runs, demo=options.demo, repair=options.repair)
        for remark in [] if code else _unmatched(file):
            _say(remark)
        return code
    config = options.config or place.config(_say) or layout.config()
    if options.command in ("mark", "silence", "alerts", "gpu-release"):
        return _by_a_part(options, config)
    as_service = options.command == "down" and options.service
    if options.command in ("down", "demo-reset"):
        # Before the look for what runs: `up` may be about to start it.
        with place.lock(f"`make {options.command}`", _say):
            stack = backend.running(config, place, _say, as_service=as_service)
            return stack.down() if options.command == "down" else stack.demo_reset()
    stack = backend.running(config, place, _say)
    if options.command == "test-alert":
        return send_test(config, options.receiver, stack, _say)
    return _status(stack, config, named=options.config is not None)


def _without_stack(options: argparse.Namespace) -> int:
    if options.command == "config":
        _say(
            (defaults(Config) if options.explain is None else explain(Config, key(options.explain))).rstrip()
        )
        return 0
    if options.command == "discover":
        return generate.main(["--discover", "docker"])
    config = options.config or layout.config()
    if options.command == "inspect":
        return inspect(options.places, load(config), _say, markdown=options.markdown)
    return backtest(options, config, _say)


def _by_a_part(options: argparse.Namespace, config: Path) -> int:
    """What needs the configuration, or a part of the stack, alone."""
    if options.command == "gpu-release":
        return gpu_release(config, options.span, _say)
    if options.command == "mark":
        return mark(config, options.run, options.note, _say)
    if options.command == "silence":
        return silence(config, options.run, options.span, options.note, _say)
    return alerts(config, options.run, options.format, _say)


def _status(stack: backend.Stack, config: Path, *, named: bool) -> int:
    with ThreadPoolExecutor(max_workers=1) as pool:
        # Asks the exporter, which may hang: at the same time as all others.
        overrides = pool.submit(_unmatched, config)
        code = stack.status()
    if code != NOT_RUNNING:
        remarks = (
            None if named else instead_of_usual(config),
            pending(config, stack.rendered, stack.deployment),
        )
        for remark in filter(None, remarks):
            _say(f"\n{remark}")
        for remark in overrides.result():
            _say(remark)
    return code


def _unmatched(file: Path) -> list[str]:
    """Return a remark on each override that fits no run; none where the file cannot be used."""
    with suppress(Refused):
        return [f"\n{remark}" for remark in unmatched(load(file))]
    return []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stepwatch" if INSTALLED else "python -m stepwatch")
    parser.add_argument("--version", action="version", version=f"stepwatch {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_start(_command(commands, "up", "start the stack, or bring a running one up to date"))
    demo = _command(commands, "demo", "the same with simulated trainers and GPUs")
    _add_start(demo)
    demo.set_defaults(command="up", demo=True)
    ending = _command(commands, "down", "stop the stack")
    ending.add_argument("--service", action="store_true", help="and remove its systemd unit")
    _command(commands, "status", "show how each part is")
    commands.add_parser("discover", help="scrape the running containers labelled stepwatch.scrape=PORT")
    _command(commands, "demo-reset", "have the demo start over")
    testing = _command(commands, "test-alert", "send one marked test message to a receiver")
    testing.add_argument("receiver", help="its name in config.yaml")
    marking = _command(commands, "mark", "measure a run anew after a wanted change of level")
    marking.add_argument("run", help="its name")
    marking.add_argument("--note", metavar="TEXT", help="what changed; shown on the dashboards")
    silencing = _command(commands, "silence", "mute all alerts of a run for a while")
    silencing.add_argument("run", help="its name")
    silencing.add_argument("--for", dest="span", default="2h", metavar="TIME", help="default: %(default)s")
    silencing.add_argument("--note", metavar="TEXT", help="why; shown beside the silence")
    judging = _command(commands, "alerts", "show each alert with its limits, and where these are from")
    judging.add_argument("run", nargs="?", help="a run's name; without it, what holds where no override fits")
    judging.add_argument("--format", choices=("table", "json"), default="table")
    reference = commands.add_parser("config", help="print the keys of config.yaml with defaults and reasons")
    which = reference.add_mutually_exclusive_group()
    which.add_argument("--defaults", action="store_true", help="all of them, as YAML; this is the default")
    which.add_argument(
        "--explain",
        metavar="KEY",
        help="one of them with all below it: alerts.KL; or that of an alert: KLHigh",
    )
    looking = _command(commands, "inspect", "show what is read of logs: which runs, which signals")
    # Texts: a path would take one of the slashes of an address away.
    looking.add_argument("places", nargs="+", metavar="PLACE", help="logs, folders of logs, or pages' URLs")
    looking.add_argument("--markdown", action="store_true", help="as a table of docs/formats.md")
    releasing = _command(commands, "gpu-release", "release the GPUs for a while, so that one can be reset")
    releasing.add_argument(
        "--for", dest="span", default=str(USUAL), metavar="TIME", help="default: %(default)s"
    )
    add_options(_command(commands, "backtest", "show which alerts old runs would have raised"))
    return parser


def _add_start(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", type=Path, help="in place of the file's runs.path")
    command.add_argument("--demo", action="store_true", help="with simulated trainers and GPUs")
    command.add_argument("--native", action="store_true", help="as plain processes even if Docker answers")
    command.add_argument(
        "--repair", action="store_true", help="move damaged files aside that keep a part from starting"
    )
    command.add_argument("--service", action="store_true", help="have systemd start it, after reboots too")


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text)
    command.add_argument("--config", type=Path, help="in place of config.yaml")
    return command


def _say(line: str) -> None:
    try:
        sys.stdout.write(adapt(f"{line}\n"))
        sys.stdout.flush()
    except BrokenPipeError:  # `make up | head`: no one reads on, but the work must be done
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (open until the end)


if __name__ == "__main__":
    interrupt.run(main)

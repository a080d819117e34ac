"""``python -m stepwatch up|down|status``: the stack as plain processes on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stepwatch.config import Refused
from stepwatch.generate import CHECKOUT
from stepwatch.native.down import down
from stepwatch.native.state import State
from stepwatch.native.status import status
from stepwatch.native.up import up


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
        sys.stderr.write(f"{refusal}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. `make status` shows what runs.\n")
        return 130


def _run(options: argparse.Namespace) -> int:
    place = State.chosen(CHECKOUT)
    if options.command == "up":
        return up(options.config, options.runs, place, _say)
    return {"down": down, "status": status}[options.command](place, _say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stepwatch")
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="start the stack, or bring a running one up to date")
    starting.add_argument(
        "--config", type=Path, default=CHECKOUT / "config.yaml", help="in place of config.yaml"
    )
    starting.add_argument("--runs", type=Path, help="in place of the file's runs.path")
    commands.add_parser("down", help="stop the stack")
    commands.add_parser("status", help="show how each part is")
    return parser


def _say(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # `make up | head`: nobody reads on, but the work must be done
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (open until the end)


if __name__ == "__main__":
    sys.exit(main())

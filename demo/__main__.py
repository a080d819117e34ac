"""``python -m demo --path FOLDER``: four simulated runs, one of them healthy, and its servers and pages."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import argparse
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from demo.pages import Pages
from demo.scenario import SCENARIOS
from demo.servers import Servers
from demo.trainer import TOTAL, Trainer
from exporter import logging_setup
from exporter.options import stopped_by_signal

logger = logging.getLogger("demo")

SHORTEST, LONGEST = 0.001, 0.4
"""Seconds of a step: slower ones would not show the trouble within three minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the logs until SIGTERM or SIGINT. Returns the exit code; 2 if they cannot be written."""
    options = _parser().parse_args(arguments)
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    folder = options.path / "demo"
    served = next(scenario for scenario in SCENARIOS if scenario.served)
    try:
        servers = Servers(options.listen, options.seed)
        pages = Pages(options.path, options.listen, options.seed, f"{folder.name}/{served.name}")
    except OSError as problem:
        logger.error(  # noqa: TRY400 - a user's mistake
            "--listen: %s: %s. Expected: an address of this machine. Fix: leave it out, or name another.",
            options.listen,
            problem.strerror,
        )
        return 2
    trainers = [
        Trainer(
            scenario,
            folder,
            options.seed,
            options.step_seconds,
            options.steps,
            servers.addresses if scenario.served else (),
        )
        for scenario in SCENARIOS
    ]
    logger.info("%d simulated runs write to %s", len(trainers), folder)
    try:
        _train(trainers, (servers, pages), options.step_seconds, stop)
        for trainer in trainers:
            trainer.remove()
        pages.remove()
    except OSError as problem:
        logger.error(  # noqa: TRY400 - a full disk, or a user's mistake
            "--path: %s: %s. Expected: a folder that can be written to. "
            "Fix: free some space there, or name another folder.",
            problem.filename or folder,
            problem.strerror,
        )
        return 2
    return 0


def _train(
    trainers: Sequence[Trainer], others: Sequence[Servers | Pages], seconds: float, stop: Event
) -> None:
    due = time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        for trainer in trainers:
            trainer.tick()
        for other in others:
            other.tick(seconds)
        # What a machine slept through is not made up for: a burst of steps would look like trouble.
        due = max(due + seconds, time.monotonic())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Write the logs of four simulated training runs."
    )
    parser.add_argument("--path", type=Path, required=True, help="the logs go to FOLDER/demo")
    parser.add_argument("--seed", type=int, default=1, help="another one gives other numbers")
    parser.add_argument("--steps", type=_steps, default=TOTAL, help="of a run, which then starts over")
    parser.add_argument(
        "--step-seconds", type=_seconds, default=0.3, help="how long a step takes (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1",
        help="the address of the simulated servers and pages (default: %(default)s)",
    )
    logging_setup.add_flags(parser)
    return parser


def _steps(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps. Expected one such as {TOTAL}.")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid step time. Expected: {SHORTEST} to {LONGEST} seconds."
        )
    return seconds


if __name__ == "__main__":
    process.run(main)

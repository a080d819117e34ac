"""What both exporters' command lines have in common: flags that are variables as well, and checks."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Mapping
from threading import Event


class Flags:
    """Adds flags to a parser; each may also be given as a variable that starts with ``prefix``.

    ``variables`` are the environment's, if no others are given.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, prefix: str, variables: Mapping[str, str] = os.environ
    ) -> None:
        self._parser = parser
        self._prefix = prefix
        self._variables = variables

    def add(
        self,
        name: str,
        kind: Callable[[str], object],
        default: object,
        text: str,
        *,
        nargs: str | None = None,
    ) -> None:
        """A flag whose default comes from its variable; several paths are separated by ``:`` there."""
        variable = f"{self._prefix}{name.replace('-', '_').upper()}"
        value = self._variables.get(variable) or default
        if isinstance(value, str):
            try:
                value = [kind(part) for part in value.split(os.pathsep) if part] if nargs else kind(value)
            except argparse.ArgumentTypeError as problem:
                self._parser.error(f"variable {variable}: {problem}")
        self._parser.add_argument(
            f"--{name}", type=kind, default=value, nargs=nargs, help=f"{text} (default: %(default)s)"
        )


def port(text: str) -> int:
    """A TCP port.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port. Expected a number from 1 to 65535.")
    return int(text)


def positive(text: str) -> float:
    """A finite number above 0.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number. Expected one such as 15 or 0.5.")
    return value


def number(text: str) -> int:
    """A whole number from 0 on.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and len(text) < 6):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number. Expected one such as 0 or 16.")
    return int(text)


def switch(text: str) -> bool:
    """Yes or no.

    Raises:
        ArgumentTypeError: it is neither.
    """
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false.")
    return text == "true"


def hosts(text: str) -> tuple[str, ...]:
    """Host names separated by commas, in lower case."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def cannot_listen(options: argparse.Namespace, error: OSError) -> str:
    """What to say when the address of ``--listen`` and ``--port`` cannot be had."""
    return (
        f"--listen {options.listen} --port {options.port}: cannot listen there: {error.strerror}. "
        "Expected an address of this machine and a free port. "
        "Fix: stop the program that has the port, or choose another one."
    )


def stopped_by_signal() -> Event:
    """An event that SIGTERM and SIGINT set from now on."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop

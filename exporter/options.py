"""Options of the exporters: flags, for which a settings file may give other defaults, and checks of values.

The file is JSON, which is YAML, too: the GPU exporter needs no other parser. A check takes the text
of a flag or a value of the file. It raises ``ArgumentTypeError`` with the value and what was expected.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from math import isfinite
from threading import Event
from typing import Any, Generic, TypeVar

from exporter import logging_setup
from exporter.secret_shapes import masked

logger = logging.getLogger(__name__)

FILE_FLAG = "--config.file"
Check = Callable[[Any], object]

EXAMPLE = '{"port": 9410}'
LARGEST_FILE = 4 << 20


class ConfigFileError(ValueError):
    """Raised when the file cannot be used; its text is the whole message."""


class ConfigFile:
    """A mapping of settings at ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._mark()

    def values(self) -> dict[str, Any]:
        """Return the settings without comments, which begin with ``__``.

        Raises:
            ConfigFileError: The file cannot be read, or is not a JSON mapping.
        """
        self._seen = self._mark()
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  (pathlib weighs 1 MB)
                content = file.read(LARGEST_FILE + 1)
            found = json.loads(content) if len(content) <= LARGEST_FILE else None
        except OSError as problem:
            why = f"cannot be read ({problem.strerror})"
            raise self.error(why, "a file that this user may read") from None
        except json.JSONDecodeError as problem:
            why = f"invalid JSON in line {problem.lineno} ({problem.msg})"
            raise self.error(why, f"a mapping such as {EXAMPLE}") from None
        except (ValueError, RecursionError):
            # Other bytes than UTF-8, a number of thousands of digits, or mappings nested too deep.
            raise self.error("invalid JSON", f"a mapping such as {EXAMPLE} in UTF-8") from None
        if len(content) > LARGEST_FILE:
            raise self.error(f"larger than {LARGEST_FILE >> 20} MiB", "a file of settings")
        if not isinstance(found, dict):
            raise self.error("not a mapping", f"one such as {EXAMPLE}")
        return {key: value for key, value in found.items() if not key.startswith("__")}

    def changed(self) -> bool:
        """Whether it was replaced since its values were read."""
        return self._mark() != self._seen

    def error(self, problem: str, expected: str) -> ConfigFileError:
        """Return the error for a problem of this file."""
        return ConfigFileError(
            f"{self.path}: {problem}. Expected {expected}. "
            "Fix: correct the file; if generate.py wrote it, run python generate.py."
        )

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116  (as above)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def setting(check: Check, default: object, text: str, *, many: bool = False, positional: bool = False) -> Any:
    """Declare a field of ``Options``: flag ``--its-name``, key ``its_name`` of the file; ``many`` are a list.

    ``text`` is for ``--help``; a ``positional`` one, which must be given, the file cannot hold.
    """
    about = {"check": check, "default": default, "text": text, "many": many, "positional": positional}
    return field(default_factory=lambda: default, metadata=about)


@dataclass(frozen=True)
class Options:
    """What every program has: the settings file, if any, and how to log."""

    config_file: str | None = None
    log_level: str = "info"
    log_format: str = "logfmt"


T = TypeVar("T", bound=Options)


class CommandLine(Generic[T]):
    """The options of a program, of class ``kind``: its flags', else its file's, else the defaults.

    ``prog`` is what users type, ``description`` is for ``--help``, ``arguments`` are the flags (``None`` for
    those of this process). ``together`` checks options that depend on each other, as a check does.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        kind: type[T],
        arguments: Sequence[str] | None = None,
        together: Callable[[T], None] = lambda _: None,
    ) -> None:
        text = f" {FILE_FLAG} names a settings file, which is reloaded when it is replaced."
        self._parser = argparse.ArgumentParser(prog=prog, description=description + text, allow_abbrev=False)
        self._parser.add_argument(
            FILE_FLAG, dest="config_file", metavar="FILE", help='JSON: {"forget_after": 3600}; flags win'
        )
        self._kind, self._arguments, self._together = kind, arguments, together
        logging_setup.add_flags(self._parser)
        self._checks: dict[str, tuple[Check, bool]] = {
            "log_level": (one_of("level", logging_setup.LEVELS), False),
            "log_format": (one_of("format", logging_setup.FORMATS), False),
        }
        for name, about in ((each.name, each.metadata) for each in fields(kind) if each.metadata):
            if about["positional"]:
                self._parser.add_argument(name, metavar=name.upper(), help=about["text"])
                continue
            help_text, nargs = f"{about['text']} (default: %(default)s)", "+" if about["many"] else None
            check, default, flag = about["check"], about["default"], f"--{name.replace('_', '-')}"
            self._parser.add_argument(flag, type=check, default=default, nargs=nargs, help=help_text)
            self._checks[name] = (check, about["many"])
        named = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        named.add_argument(FILE_FLAG, dest="path")
        path = named.parse_known_args(arguments)[0].path
        self._file = ConfigFile(path) if path else None

    def options(self) -> T:
        """Return the options of a program that starts; ends it with code 2 where they cannot be used."""
        try:
            return self._options()
        except ConfigFileError as problem:
            sys.stderr.write(f"{masked(str(problem))}\n")
            sys.exit(2)
        except ArgumentTypeError as problem:
            self._parser.error(masked(str(problem)))

    def changed(self) -> bool:
        """Whether the file was replaced since it was read."""
        return self._file is not None and self._file.changed()

    def renewed(self) -> T | None:
        """Return the options of a file that was replaced; ``None``, with an error logged, for a bad one."""
        try:
            return self._options()
        except (ConfigFileError, ArgumentTypeError) as problem:
            logger.error("%s The running settings stay in effect.", problem)  # noqa: TRY400 - a user's mistake
            return None

    def _options(self) -> T:
        found = argparse.Namespace(**(self._of_file(self._file) if self._file else {}))
        # argparse leaves alone what the namespace has already, unless there is a flag.
        options = self._kind(**vars(self._parser.parse_args(self._arguments, found)))
        self._together(options)
        return options

    def _of_file(self, file: ConfigFile) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in file.values().items():
            if key not in self._checks:
                raise file.error(f"{key}: unknown key", f"one of {', '.join(sorted(self._checks))}")
            check, many = self._checks[key]
            if value is None:  # the default
                continue
            if many and not isinstance(value, list):
                raise file.error(f"{key}: {value!r} is not a list", "a list")
            try:
                found[key] = [check(each) for each in value] if many else check(value)
            except ArgumentTypeError as problem:
                says, _, expected = str(problem).partition(". Expected ")
                expected = expected.rstrip(".") or "another value"
                raise file.error(f"{key}: {says.rstrip('.')}", expected) from None
            except TypeError:  # of a check that is a type, such as Path
                raise file.error(f"{key}: {value!r} is not text", "text in quotes") from None
        return found


def string(value: object) -> str:
    """Check a text."""
    if isinstance(value, str):
        return value
    raise ArgumentTypeError(f"{value!r} is not text. Expected text in quotes.")


def _numeric(
    expected: str, kind: type[int | float], fits: Callable[[float], bool]
) -> Callable[[object], Any]:
    """Return a check for a finite number, whole if ``kind`` is int."""

    def check(value: object) -> Any:
        types: tuple[type, ...] = (str, int) if kind is int else (str, int, float)
        with suppress(ValueError, OverflowError):  # not a number, or a whole one beyond all floats
            if isinstance(value, types) and not isinstance(value, bool):
                found = kind(str(value))
                plain = kind is float or not isinstance(value, str) or (value.isdecimal() and len(value) < 7)
                if plain and isfinite(found) and fits(found):
                    return found
        raise ArgumentTypeError(f"{value!r} is not {expected}.")

    return check


port = _numeric("a port. Expected a number from 1 to 65535", int, lambda value: 0 < value < 65536)
number = _numeric("a whole number. Expected one such as 0 or 16", int, lambda value: 0 <= value < 10**6)
positive = _numeric("a positive number. Expected one such as 15 or 0.5", float, lambda value: value > 0)
not_negative = _numeric(
    "a number of 0 or more. Expected one such as 0 or 2.5", float, lambda value: value >= 0
)


def switch(value: object) -> bool:
    """Check true or false."""
    if not isinstance(value, bool) and value not in ("true", "false"):
        raise ArgumentTypeError(f"{value!r} is not a boolean. Expected true or false.")
    return value is True or value == "true"


def one_of(noun: str, known: Iterable[str]) -> Check:
    """Return a check for one of these names."""
    names = list(known)

    def check(value: object) -> object:
        if value not in names:
            raise ArgumentTypeError(f"{value!r} is not a {noun}. Expected {' or '.join(names)}.")
        return value

    return check


def hosts(value: object) -> tuple[str, ...]:
    """Check host names, separated by commas or in a list; returns them in lower case."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError(f'{value!r} is not a list of names. Expected one such as ["host"].')
    return tuple(name.strip().lower() for name in names if name.strip())


def texts(value: object) -> dict[str, Any]:
    """Check a mapping, which a flag has as JSON."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value
        return dict(found)
    except (ValueError, TypeError):
        raise ArgumentTypeError(f"{value!r} is not a mapping. Expected texts by texts.") from None


@dataclass(frozen=True)
class Served(Options):
    """What a program has that serves HTTP."""

    port: int = setting(port, None, "port to serve on")
    listen: str = setting(string, "127.0.0.1", "address to serve on")
    hosts: tuple[str, ...] = setting(
        hosts, (), "further host names that requests may use, separated by commas"
    )

    def cannot_listen(self, error: OSError) -> None:
        """Log that this address is not available."""
        logger.error(
            "--listen %s --port %s: cannot listen there: %s. "
            "Expected an address of this machine and a free port. "
            "Fix: stop the program that uses the port, or choose another one.",
            self.listen,
            self.port,
            error.strerror,
        )


def stopped_by_signal() -> Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def start_again(module: str, stop: Event) -> None:
    """Re-execute a module with the same arguments, unless a signal has asked this process to stop."""
    if stop.is_set():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # ends the process from here on: an event would be lost
    if not stop.is_set():
        logger.info("New settings: restarting to apply them.")
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])  # noqa: S606

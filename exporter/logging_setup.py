"""Logging of the programs that run for long: one record a line on standard error, without secrets."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from exporter.secret_shapes import masked

if TYPE_CHECKING:
    import argparse  # 0.2 MB that the worker of the GPU exporter does without

logger = logging.getLogger(__name__)

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
"""What ``--log.level`` takes: Prometheus' names."""

_SHOWN = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_OF_EACH_RECORD = frozenset(vars(logging.makeLogRecord({})))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--log.level`` and ``--log.format``, whose values ``configure`` takes."""
    for name, choices, default, text in (
        ("level", LEVELS, "info", "lowest level to log"),
        ("format", FORMATS, "logfmt", "format of log lines"),
    ):
        about = f"{text} (default: %(default)s)"
        flag, dest = f"--log.{name}", f"log_{name}"
        parser.add_argument(flag, dest=dest, choices=choices, default=default, help=about)


def configure(level: str, form: str) -> None:
    """Log from now on as ``--log.level`` and ``--log.format`` say; may be called again.

    What no code catches is logged as well, in any thread, and so are warnings.
    """
    root = logging.getLogger()
    root.setLevel(LEVELS[level])
    _HANDLER.setFormatter(_Formatter(FORMATS[form]))
    root.addHandler(_HANDLER)  # once, however often
    logging.captureWarnings(capture=True)

    def log(what: str, kind: type[BaseException], error: BaseException | None, trace: Any) -> None:
        if not issubclass(kind, SystemExit):  # by which a thread may end itself
            error = error or kind()
            logger.error("%s: %r", what, error, exc_info=(kind, error, trace))

    def of_thread(found: threading.ExceptHookArgs) -> None:
        name = found.thread.name if found.thread else ""
        log(f"Uncaught exception in thread {name}", found.exc_type, found.exc_value, found.exc_traceback)

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        what = f"{found.err_msg or 'Exception ignored in'}: {found.object!r}"
        log(what, found.exc_type, found.exc_value, found.exc_traceback)

    sys.excepthook = lambda *error: log("Uncaught exception", *error)
    threading.excepthook, sys.unraisablehook = of_thread, unraisable


class _StandardError(logging.Handler):
    """Drops what standard error does not take at once: it may be a full disk, or a pipe that no one reads."""

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        if sys.__stderr__ is None:  # it was closed at the start: by now its number may be another file's
            return
        with suppress(OSError):
            # A pipe that is ready takes so many bytes without blocking.
            while line and select.select((), (2,), (), 0)[1]:
                line = line[os.write(2, line[: select.PIPE_BUF]) :]


class _Formatter(logging.Formatter):
    """Time, level, logger, message, what ``extra`` holds, and the traceback, as ``encode`` writes them."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, encode: Callable[[Mapping[str, str]], str]) -> None:
        super().__init__()
        self._encode = encode

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": _SHOWN.get(record.levelname, record.levelname),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OF_EACH_RECORD},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self._encode({key: masked(str(value)) for key, value in fields.items()})


def _logfmt(fields: Mapping[str, str]) -> str:
    """Return fields as Prometheus writes them, ``msg`` included: in one line, whatever signs they have."""
    pairs = []
    for key, value in fields.items():
        shown = value
        if not value or not value.isprintable() or any(sign in value for sign in ' ="\\'):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            shown = f'"{"".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in escaped)}"'
        pairs.append(f"{'msg' if key == 'message' else key}={shown}")
    return " ".join(pairs)


FORMATS: Mapping[str, Callable[[Mapping[str, str]], str]] = {"logfmt": _logfmt, "json": json.dumps}
"""What ``--log.format`` takes."""

_HANDLER = _StandardError()

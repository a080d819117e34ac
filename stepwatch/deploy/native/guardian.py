"""``python -m stepwatch.deploy.native.guardian FOLDER``: supervises the supervisord of a state folder.

supervisord restarts the guardian when it dies, and the guardian restarts supervisord. It also rotates the
logs of the parts.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from exporter import logging_setup
from stepwatch.system import processes

logger = logging.getLogger("stepwatch.deploy.native.guardian")

SERVICE = "STEPWATCH_SERVICE"
"""Set in the environment where systemd supervises supervisord."""

_TICK_SECONDS = 0.5
_HUNG_SECONDS = 20
"""supervisord answers within milliseconds, and while it stops parts, too."""
_ANSWER_SECONDS = 2
_ASK_SECONDS = 5
_STOP_SECONDS = 6
"""Prometheus and Alertmanager need one second to save what they know."""

_LOG_BYTES = 10_000_000
_LOGS = 3
_ROTATE_SECONDS = 10


def main() -> int:
    """Watch supervisord until it is replaced. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stepwatch.deploy.native.guardian")
    parser.add_argument("folder", type=Path, help="the state folder of the stack")
    logging_setup.add_flags(parser)
    options = parser.parse_args()
    logging_setup.configure(options.log_level, options.log_format)
    folder: Path = options.folder
    guardian = Guardian(folder)
    while guardian.supervised():
        guardian.rotate_when_due()
        guardian.kill_when_hung()
        time.sleep(_TICK_SECONDS)
    end = f"supervisord {guardian.end} at {time.strftime('%Y-%m-%d %H:%M:%S')}"
    if os.environ.get(SERVICE):
        return 0  # systemd ends what is left, this process included, and starts supervisord
    while not _replaced(folder, end):
        time.sleep(1)
    return 0


class Guardian:
    """The watch over the supervisord whose child this process is; ``folder`` is the state folder."""

    def __init__(self, folder: Path) -> None:
        parent = os.getppid()
        # Where supervisord died before this line, the parent is one that adopts orphans.
        self._supervisor = parent if processes.belongs(parent, str(folder)) else 0
        self._folder = folder
        self.end = "was killed or crashed"  # one that is asked to end stops its parts, this process included
        self._asked = self._answered = self._rotated = time.monotonic()

    def supervised(self) -> bool:
        """Whether supervisord lives: a process whose parent died gets another one, at once."""
        return os.getppid() == self._supervisor

    def kill_when_hung(self) -> None:
        """End a supervisord that lives but has answered nothing for ``_HUNG_SECONDS``."""
        now = time.monotonic()
        if now - self._asked < _ASK_SECONDS:
            return
        if now - self._asked > 2 * _ASK_SECONDS or _answers(self._folder):
            self._answered = now  # or this process did not run either: the machine slept
        self._asked = time.monotonic()
        if now - self._answered > _HUNG_SECONDS and self.supervised():
            self.end = f"had not answered for {_HUNG_SECONDS} s and was killed"
            logger.error("supervisord (pid %d) %s.", self._supervisor, self.end)
            os.kill(self._supervisor, signal.SIGKILL)

    def rotate_when_due(self) -> None:
        """Keep each part's log bounded."""
        now = time.monotonic()
        if now - self._rotated < _ROTATE_SECONDS:
            return
        self._rotated = now
        for log in (self._folder / "logs").glob("*.log"):
            if log.name != "supervisord.log":  # which supervisord rotates
                rotate(log)


def rotate(log: Path, limit: int = _LOG_BYTES) -> None:
    """Move what a log holds to ``<log>.1``, when it is over ``limit`` bytes; three old logs are kept.

    The log stays the same file, which its writer keeps open for appending. Where the disk is too full for
    a copy, the log stays as it is.
    """
    fresh = log.with_name(f"{log.name}.new")
    try:
        if log.stat().st_size <= limit:
            return
        with log.open("rb+") as source, fresh.open("wb") as copy:
            shutil.copyfileobj(source, copy)
            source.truncate(0)  # at once: lines written between the two calls are lost
        for number in range(_LOGS - 1, 0, -1):
            old = log.with_name(f"{log.name}.{number}")
            if old.exists():
                old.replace(log.with_name(f"{log.name}.{number + 1}"))
        fresh.replace(log.with_name(f"{log.name}.1"))
    except OSError as problem:
        fresh.unlink(missing_ok=True)
        logger.error("%s: the log cannot be rotated: %s.", log, problem.strerror)  # noqa: TRY400 - a full disk


def _answers(folder: Path) -> bool:
    """Whether supervisord answers anything; its own XML-RPC would take 6 MB here."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.settimeout(_ANSWER_SECONDS)
            door.connect(f"/proc/self/fd/{descriptor}/supervisor.sock")
            door.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return bool(door.recv(1))
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _replaced(folder: Path, end: str) -> bool:
    """Start a new supervisord for the stack; return whether that is done, or no longer needed.

    ``end``: how and when the old one ended.
    """
    # Only now: these take 25 MB, which no guardian needs while all is well.
    from stepwatch.deploy.native import supervisord  # noqa: PLC0415
    from stepwatch.deploy.native.state import StackError, State, write  # noqa: PLC0415

    place = State(folder)
    try:
        with place.lock("the guardian", logger.info), supervisord.connected(place) as server:
            if server or not place.wanted:
                return True
            logger.error("supervisord is gone: stopping the parts that it left, and restarting all parts.")
            # They hold the ports.
            processes.stop(place.mark, grace=_STOP_SECONDS)
            supervisord.start(place)
            with suppress(OSError):  # on a full disk
                write(place.restarted, f"{end}; the guardian restarted all parts.")
    except (OSError, StackError) as problem:
        logger.error("%s", problem)  # noqa: TRY400 - it says what to do
        return not folder.is_dir()
    return True


if __name__ == "__main__":
    sys.exit(main())

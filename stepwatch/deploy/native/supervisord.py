"""supervisord, which starts the parts and restarts them when they die."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import xmlrpc.client
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from stepwatch.deploy.native import state
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system import processes

_GREETING_SECONDS = 5
_ORDER_SECONDS = 100
"""Longer than it takes to stop a part, which supervisord does before it answers."""
_KILL_SECONDS = 60
"""Seconds from SIGTERM to SIGKILL of a part."""

# Every path but the commands is relative to the state folder, supervisord's working directory:
# an INI value can quote nothing, and a socket's address holds no more than 107 characters.
_HEAD = """\
[supervisord]
logfile = logs/supervisord.log
logfile_maxbytes = 1MB
logfile_backups = 1
pidfile = supervisord.pid
childlogdir = logs
umask = 022
{user}
[unix_http_server]
file = /proc/self/cwd/supervisor.sock
chmod = 0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

# A part that dies at once is started again after 1, 2, 3 ... seconds: 100 times take 84 minutes, time
# enough for someone to notice a full disk. Parts write their logs themselves: with supervisord's pipe in
# between, its death would be theirs, by SIGPIPE at their next line. The guardian rotates the logs.
_PROGRAM = """
[program:{name}]
command = {command}
autorestart = true
startretries = 100
stopwaitsecs = {kill_seconds}
killasgroup = true
redirect_stderr = true
stdout_logfile = NONE
"""
_LOGGED = """exec "$@" </dev/null >>logs/{name}.log 2>&1"""

_DIED = re.compile(
    r"^(\S+ [\d:]+)\S* \w+ exited: (\S+) \((?:terminated by (SIG[A-Z]+)|([^;)]*))", re.MULTILINE
)


@dataclass(frozen=True)
class Report:
    """supervisord's state of a part; ``since`` is a Unix time, 0 when it does not run."""

    name: str
    state: str
    pid: int
    since: float


def configure(place: State, parts: Iterable[Part]) -> None:
    """Write the configuration for supervisord, now or at its next start.

    Raises:
        StackError: A command cannot be written in it.
    """
    # As root it warns unless this is set.
    text = _HEAD.format(user="user = 0\n" if os.geteuid() == 0 else "")
    for part in parts:
        words = ["/bin/sh", "-c", _LOGGED.format(name=part.name), part.name]
        if part.environment:
            words += ["/usr/bin/env", *(f"{name}={value}" for name, value in part.environment.items())]
        # Behind a space ; and # begin a comment of the INI file, even inside quotes: part the two.
        quoted = (re.sub(r"(?<=\s)([;#])", r"''\1", shlex.quote(word)) for word in [*words, *part.command])
        line = " ".join(quoted)
        if "\n" in line or "\t" in line:
            raise StackError(f"{line!r} holds a line break or a tab. Fix: rename that folder.")
        text += _PROGRAM.format(name=part.name, command=line.replace("%", "%%"), kill_seconds=_KILL_SECONDS)
    state.write(place.supervisor_config, text)


def command(place: State) -> list[str]:
    """The command that starts supervisord in the background, in the state folder, with the stack's mark."""
    return [sys.executable, "-m", "supervisor.supervisord", "-c", str(place.supervisor_config)]


def start(place: State) -> None:
    """Start supervisord in the background.

    Raises:
        StackError: it did not start; the message holds what it said.
    """
    done = subprocess.run(
        command(place),
        cwd=place.folder,
        # The guardian's own name is none of supervisord's.
        env={**os.environ, processes.MARK: place.mark, processes.NAME: ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"supervisord did not start: {(done.stderr or done.stdout).strip()}")


@contextmanager
def connected(place: State) -> Iterator[Supervisord | None]:
    """The running supervisord of a state folder, ``None`` when there is none that answers."""
    if not place.socket.exists():
        yield None
        return
    folder = os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = f"/proc/self/fd/{folder}/{place.socket.name}"
        with _server(path, _ORDER_SECONDS) as server:
            yield Supervisord(server) if _answers(path) else None
    finally:
        os.close(folder)


class Supervisord:
    """Orders to a running supervisord."""

    def __init__(self, server: xmlrpc.client.ServerProxy) -> None:
        self._server = server

    def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._server, f"supervisor.{method}")(*arguments)

    def reports(self) -> dict[str, Report]:
        """The supervised parts, by name; none once `make down` has begun."""
        try:
            return {
                info["name"]: Report(
                    info["name"], info["statename"], info["pid"], info["start"] if info["pid"] else 0
                )
                for info in self._call("getAllProcessInfo")
            }
        except (xmlrpc.client.Fault, OSError, http.client.HTTPException):
            return {}

    def apply(self) -> set[str]:
        """Read the configuration again; restart only what it changed, and return those names."""
        [[added, changed, removed]] = self._call("reloadConfig")
        for name in [*changed, *removed]:
            self.stop(name)
            self._call("removeProcessGroup", name)
        for name in [*added, *changed]:
            self._call("addProcessGroup", name)
        return {*added, *changed}

    def restart_down(self) -> set[str]:
        """Start parts that wait for a retry or are fatal; returns their names."""
        reports = self.reports().items()
        down = {name for name, report in reports if report.state not in ("RUNNING", "STARTING")}
        for name in down:
            self.restart(name)
        return down

    def stop(self, name: str) -> None:
        """Stop a part, or its next try to start."""
        self._call("stopProcessGroup", name)

    def restart(self, name: str) -> None:
        """Stop a part and start it again; returns before it is up."""
        self.stop(name)
        with suppress(xmlrpc.client.Fault):  # then its state says so
            self._call("startProcess", name, False)  # noqa: FBT003 - XML-RPC has no keywords: do not wait

    def send_hup(self, name: str) -> None:
        """Send SIGHUP to a part, to reload its settings; one that just died reads them at its start."""
        with suppress(xmlrpc.client.Fault):
            self._call("signalProcess", name, "HUP")

    def shut_down(self, mark: str) -> None:
        """Stop every part, then supervisord itself.

        Returns when no process with the mark lives, or when supervisord should have killed them long ago.
        """
        # All at once, without a wait: `shutdown` alone stops one after the other, a second each.
        self._call("stopAllProcesses", False)  # noqa: FBT003 - XML-RPC has no keywords
        self._call("shutdown")
        processes.wait(mark, _KILL_SECONDS + 15)


def exits(place: State) -> dict[str, list[str]]:
    """How and when each part died, each time since supervisord started, by its own log."""
    log = place.log("supervisord")
    files = (file for file in (log.with_suffix(".log.1"), log) if file.exists())
    text = "".join(file.read_text(errors="replace") for file in files)
    ends: dict[str, list[str]] = {}
    for at, name, killed, reason in _DIED.findall(text.rpartition("supervisord started with pid")[2]):
        end = f"killed by signal {signal.Signals[killed].value} ({killed})" if killed else reason
        ends.setdefault(name, []).append(f"{end} at {at}")
    return ends


def _answers(path: str) -> bool:
    with _server(path, _GREETING_SECONDS) as server:
        try:
            state: Any = server.supervisor.getState()
        except (OSError, http.client.HTTPException, xmlrpc.client.Fault):  # a fault while it shuts down
            return False
    return bool(state["statename"] == "RUNNING")


def _server(path: str, timeout: float) -> xmlrpc.client.ServerProxy:
    """XML-RPC over a socket in the file system."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(timeout)
            self.sock.connect(path)

    class Transport(xmlrpc.client.Transport):
        def make_connection(self, host: Any) -> http.client.HTTPConnection:
            connection = self._connection[1] or Connection(str(host))
            self._connection = (host, connection)  # which the base class closes at the end
            return connection

    return xmlrpc.client.ServerProxy("http://supervisord/RPC2", transport=Transport())

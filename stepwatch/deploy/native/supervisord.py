"""supervisord, which starts the parts and starts them again when they die."""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass
from typing import Any

from stepwatch.deploy.native import state
from stepwatch.deploy.native.part import Part
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system import processes

_GREETING_SECONDS = 5
_ORDER_SECONDS = 100
"""Longer than it takes to stop a part, which supervisord does before it answers."""
_KILL_SECONDS = 60
"""A part that has not ended so long after it was asked to is killed."""

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


_KILLED = re.compile(r"^terminated by (SIG[A-Z]+)")


@dataclass(frozen=True)
class Report:
    """What supervisord knows of a part; ``since`` is a Unix time, 0 when it does not run."""

    name: str
    state: str
    pid: int
    since: float


def render(parts: Iterable[Part]) -> str:
    """The configuration that keeps these parts running."""
    programs = [
        _PROGRAM.format(name=part.name, command=_command(part), kill_seconds=_KILL_SECONDS) for part in parts
    ]
    # As root it warns unless this is set.
    return _HEAD.format(user="user = 0\n" if os.geteuid() == 0 else "") + "".join(programs)


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


def command(place: State) -> list[str]:
    """The command that starts supervisord in the background, in the state folder, with the stack's mark."""
    return [sys.executable, "-m", "supervisor.supervisord", "-c", str(place.supervisor_config)]


def configure(place: State, parts: Iterable[Part]) -> None:
    """Write the configuration for supervisord, now or at its next start."""
    state.write(place.supervisor_config, render(parts))


@contextlib.contextmanager
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
        """What runs, by name of the part; nothing once `make down` has begun."""
        try:
            return {info["name"]: _report(info) for info in self._call("getAllProcessInfo")}
        except (xmlrpc.client.Fault, OSError, http.client.HTTPException):
            return {}

    def apply(self) -> set[str]:
        """Read the configuration again; restart only what it changed, and return those names."""
        [[added, changed, removed]] = self._call("reloadConfig")
        for name in [*changed, *removed]:
            self._call("stopProcessGroup", name)
            self._call("removeProcessGroup", name)
        for name in [*added, *changed]:
            self._call("addProcessGroup", name)
        return {*added, *changed}

    def revive(self) -> set[str]:
        """Start at once what waits for its next try or was given up; return those names."""
        down = {
            name for name, report in self.reports().items() if report.state not in ("RUNNING", "STARTING")
        }
        for name in down:
            self._call("stopProcessGroup", name)
            with contextlib.suppress(xmlrpc.client.Fault):  # then its state says so
                self._call("startProcess", name, False)  # noqa: FBT003 - XML-RPC has no keywords: do not wait
        return down

    def stop(self, name: str) -> None:
        """Stop a part, or its next try to start."""
        self._call("stopProcessGroup", name)

    def restart(self, name: str) -> None:
        """Stop a part and start it again; returns before it is up."""
        self._call("stopProcess", name)
        with contextlib.suppress(xmlrpc.client.Fault):  # then its state says so
            self._call("startProcess", name, False)  # noqa: FBT003 - XML-RPC has no keywords: do not wait

    def hang_up(self, name: str) -> None:
        """Have a part read its settings again; one that just died reads them when it starts."""
        with contextlib.suppress(xmlrpc.client.Fault):
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
    text = "".join(
        file.read_text(errors="replace") for file in (log.with_suffix(".log.1"), log) if file.exists()
    )
    now = text.rpartition("supervisord started with pid")[2]
    ends: dict[str, list[str]] = {}
    for at, name, reason in re.findall(r"^(\S+ [\d:]+)\S* \w+ exited: (\S+) \(([^;)]*)", now, re.MULTILINE):
        ends.setdefault(name, []).append(f"{_KILLED.sub(_killed, reason)} at {at}")
    return ends


def _killed(found: re.Match[str]) -> str:
    return f"killed by signal {signal.Signals[found[1]].value} ({found[1]})"


def _report(info: dict[str, Any]) -> Report:
    return Report(info["name"], info["statename"], info["pid"], info["start"] if info["pid"] else 0)


def _command(part: Part) -> str:
    environment = [f"{name}={value}" for name, value in part.environment.items()]
    words = ["/bin/sh", "-c", _LOGGED.format(name=part.name), part.name]
    words += ["/usr/bin/env", *environment] if environment else []
    return _ini(" ".join(_word(word) for word in [*words, *part.command]))


def _word(word: str) -> str:
    # Behind a space ; and # begin a comment of the INI file, even inside quotes: part the two.
    return re.sub(r"(?<=\s)([;#])", r"''\1", shlex.quote(word))


def _ini(value: str) -> str:
    if "\n" in value or "\t" in value:
        raise StackError(f"{value!r} holds a line break or a tab. Fix: rename that folder.")
    return value.replace("%", "%%")


def _answers(path: str) -> bool:
    with _server(path, _GREETING_SECONDS) as server:
        try:
            state: Any = server.supervisor.getState()
        except (OSError, http.client.HTTPException, xmlrpc.client.Fault):  # a fault while it shuts down
            return False
    return bool(state["statename"] == "RUNNING")


def _server(path: str, timeout: float) -> xmlrpc.client.ServerProxy:
    return xmlrpc.client.ServerProxy("http://supervisord/RPC2", transport=_Transport(path, timeout))


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__()
        self._path, self._timeout = path, timeout

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = self._connection[1] or _Connection(str(host), self._path, self._timeout)
        self._connection = (host, connection)  # which the base class closes at the end
        return connection


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, path: str, timeout: float) -> None:
        super().__init__(host, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

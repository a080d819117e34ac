"""supervisord starts the parts and restarts those that die; the stack runs exactly if it does."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwatch.deploy.native import launcher, state
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system import processes
from stepwatch.system.terminal import Say

if TYPE_CHECKING:
    from stepwatch.deploy.native.stack import Part

_GREETING_SECONDS = 5
_HUNG_SECONDS = 20
"""It answers within milliseconds, and while it stops parts, too."""
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

# A part that dies at once is started again after 1, 2, 3 ... seconds: 1000 times take six days, time enough
# to notice a full disk.
_PROGRAM = """
[program:{name}]
command = {command}
autorestart = true
startretries = 1000
stopwaitsecs = {kill_seconds}
killasgroup = true
redirect_stderr = true
stdout_logfile = logs/{name}.log
stdout_logfile_maxbytes = 10MB
stdout_logfile_backups = 3
"""

_FAULTS = (OSError, http.client.HTTPException, xmlrpc.client.Fault)
"""No answer, or the fault of one that shuts down."""

_DIED = re.compile(
    r"^(\S+ [\d:]+)\S* \w+ exited: (\S+) \((?:terminated by (SIG[A-Z]+)|([^;)]*))", re.MULTILINE
)


class Report(NamedTuple):
    """supervisord's state of a part: ``pid`` is 0 when it does not run, ``since`` its start (Unix time)."""

    name: str
    state: str
    pid: int
    since: float


def configure(place: State, parts: Iterable[Part]) -> None:
    """Write the configuration for supervisord, now or at its next start."""
    # As root it warns unless this is set.
    text = _HEAD.format(user="user = 0\n" if os.geteuid() == 0 else "")
    for part in parts:
        words = [sys.executable, "-I", "-S", launcher.__file__]
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
    """The command that starts supervisord in the background, in the state folder."""
    return [sys.executable, "-m", processes.SUPERVISORD, "-c", str(place.supervisor_config)]


def start(place: State) -> None:
    """Start supervisord in the background."""
    words, none = command(place), subprocess.DEVNULL
    done = subprocess.run(words, cwd=place.folder, stdin=none, capture_output=True, text=True, check=False)
    if done.returncode or not answers_soon(place):
        said = (done.stderr or done.stdout).strip() or f"see {place.log('supervisord')}"
        raise StackError(f"supervisord did not start: {said}")


def answers_soon(place: State) -> bool:
    """Wait until supervisord answers; return whether it does."""
    return _wait(lambda: _answers(place), 30)


def _answers(place: State) -> bool:
    with connected(place) as server:
        return server is not None


def _wait(fact: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so; return whether it is."""
    deadline = time.monotonic() + seconds
    while not (so := fact()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return so


def living(place: State) -> int:
    """The process id of the stack's supervisord, which may hang; 0 if none lives."""
    with suppress(OSError, ValueError):
        pid = recorded(place)
        if processes.SUPERVISORD in processes.words(pid) and Path(f"/proc/{pid}/cwd").samefile(place.folder):
            return pid
    with connected(place) as server:  # a full disk had no room for the pid file
        return server.pid if server else 0


def recorded(place: State) -> int:
    """The process id of the stack's last supervisord, which leads the session of its parts; 0 if unknown."""
    with suppress(OSError, ValueError):
        return int((place.folder / "supervisord.pid").read_text())
    return 0


def owns(place: State, pid: int) -> bool:
    """Whether a process is a part of this stack, or a child of one."""
    leader = living(place) or recorded(place)
    with suppress(OSError):
        # In a container the session of a process from outside is 0.
        return leader != 0 and os.getsid(pid) == leader
    return False


def rouse(place: State, say: Say) -> None:
    """Have a suspended supervisord go on, and kill one that hangs: its parts die with it."""
    if not (pid := living(place)):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    if _wait(lambda: _answers(place) or living(place) != pid, _HUNG_SECONDS):
        return
    say(f"supervisord (pid {pid}) has not answered for {_HUNG_SECONDS} s; killing it and its parts.")
    if not kill(place):
        raise StackError(
            f"supervisord (pid {pid}) does not end when it is killed, as on a disk that does not answer. "
            f"Fix: repair the disk of {place.folder}, or restart the machine."
        )


def kill(place: State) -> bool:
    """Kill the stack's supervisord, and so its parts, if it lives; return whether it is dead."""
    if not (pid := living(place)):
        return True
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return _wait_end(pid, 10)


def _wait_end(pid: int, seconds: float) -> bool:
    return _wait(lambda: processes.SUPERVISORD not in processes.words(pid), seconds)


@contextmanager
def connected(place: State) -> Iterator[Supervisord | None]:
    """The running supervisord of a state folder, ``None`` when there is none that answers."""
    if not place.socket.exists():
        yield None
        return
    folder = os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = f"/proc/self/fd/{folder}/{place.socket.name}"
        with _server(path, _GREETING_SECONDS) as server:
            try:
                known: Any = server.supervisor.getState()
            except _FAULTS:
                known = {"statename": "UNKNOWN"}
        with _server(path, _ORDER_SECONDS) as server:
            yield Supervisord(server) if known["statename"] == "RUNNING" else None
    finally:
        os.close(folder)


class Supervisord:
    """Orders to a running supervisord."""

    def __init__(self, server: xmlrpc.client.ServerProxy) -> None:
        self._server = server

    def _call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._server, f"supervisor.{method}")(*arguments)

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self._call("getPID"))

    def reports(self) -> dict[str, Report]:
        """The supervised parts, by name; none once `make down` has begun."""
        try:
            infos = self._call("getAllProcessInfo")
        except _FAULTS:
            return {}
        parts = [Report(each["name"], each["statename"], each["pid"], each["start"]) for each in infos]
        return {each.name: each for each in parts}

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
        down = {each.name for each in self.reports().values() if each.state not in ("RUNNING", "STARTING")}
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

    def shut_down(self) -> None:
        """Stop every part, suspended ones too, then supervisord itself."""
        pid = self.pid
        self._call("signalAllProcesses", "CONT")
        # All at once, without a wait: `shutdown` alone stops one after the other, a second each.
        self._call("stopAllProcesses", False)  # noqa: FBT003 - XML-RPC has no keywords
        self._call("shutdown")
        _wait_end(pid, _KILL_SECONDS + 15)


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

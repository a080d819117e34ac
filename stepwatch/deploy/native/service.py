"""The systemd unit that runs supervisord, so that a native stack outlives logouts and reboots.

Users have it in their own systemd manager, root in the system's: root has no user manager outside of a
login, and the system's needs no lingering.

The unit does not decide whether the stack runs: it starts nothing after `make down`, which leaves it
enabled, and the next `make up` uses it.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

from exporter.installation import adapt
from stepwatch.deploy.native import state, supervisord
from stepwatch.deploy.native.state import StackError, State
from stepwatch.system.terminal import Say

NAME = "stepwatch.service"

_LINGERING = Path("/var/lib/systemd/linger")
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "TZ", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
_NO_COMMAND = 127
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")

# When supervisord dies, its parts die with it, and systemd starts it again. When the kernel kills one part
# for memory, the others run on.
_UNIT = """\
# Written by `make up SERVICE=1`; `make down SERVICE=1` removes it.
[Unit]
Description=Stepwatch in {folder}
ConditionPathExists={config}
StartLimitIntervalSec=0
{after}
[Service]
Type=exec
ExecStart={command}
WorkingDirectory={folder}
EnvironmentFile=-{file}
Restart=always
RestartSec=1
TimeoutStopSec=75
OOMPolicy=continue

[Install]
WantedBy={target}
"""


def path() -> Path:
    """The unit's file, whether it is there or not."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system") / NAME
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user" / NAME


def installed(place: State) -> bool:
    """Whether the unit is there and runs the stack of this state folder."""
    return _mark(place) in _text()


def install(place: State, say: Say) -> None:
    """Write the unit, and have systemd start it at boot, or at login where lingering is off."""
    _require_systemd()
    old = _text()
    if old and _mark(place) not in old:
        folder = next((line[17:] for line in old.splitlines() if line.startswith("WorkingDirectory=")), "?")
        raise StackError(
            f"{path()} runs the stack in {folder}. Expected: no unit, or one for {place.folder}. "
            f"Fix: `make down SERVICE=1` with {state.VARIABLE}={folder}, or `make up` alone here."
        )
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        state.write(path(), unit(place))
    except OSError as problem:
        raise StackError(
            f"{path()}: {problem.strerror}. Expected: a unit file that can be written. "
            "Fix: permit that, or run `make up` alone."
        ) from None
    _order("daemon-reload")
    _order("enable", NAME)
    for line in (f"systemd starts Stepwatch from now on: {path()}", *_remarks()):
        say(line)


def remove(place: State, say: Say) -> None:
    """Remove the unit of this state folder, if it is there; the stack is down."""
    if not installed(place):
        say("There is no systemd unit of this stack.")
        return
    _order("disable", NAME)
    path().unlink()
    _order("daemon-reload")
    say(f"Removed {path()}.")


def start(place: State) -> None:
    """Have systemd start supervisord."""
    _require_systemd()
    # What parts take from the shell of `make up`: programs, libraries, proxies, our own settings.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.lower() in _PROXIES or name.startswith("STEPWATCH_")
        if "\n" not in value
    }
    lines = (f"{name}={_quoted(value)}\n" for name, value in inherited.items())
    state.write(place.environment, "".join(lines))
    place.environment.chmod(0o600)
    _order("start", NAME)
    if not supervisord.answers_soon(place):
        raise StackError(f"supervisord did not start. systemd says: {_shown('status', '--lines=5', NAME)}")


def stop(place: State) -> None:
    """Have systemd stop the stack, if the unit runs it; where systemd cannot be asked, nothing happens."""
    if runs(place):
        _ask("stop", NAME)


def runs(place: State) -> bool:
    """Whether the stack of this state folder runs below the unit."""
    return installed(place) and _shown("is-active", NAME) in ("active", "activating", "deactivating")


def report(place: State) -> list[str]:
    """The text of `status` about the unit."""
    if not installed(place):
        return ["Service: none, so a reboot stops Stepwatch. `make up SERVICE=1` has systemd start it again."]
    if _ask("is-active", NAME).returncode == _NO_COMMAND:
        return [f"Service: {path()} is in place, but systemctl is not on PATH."]
    words = f"{_shown('is-enabled', NAME) or 'unknown'} and {_shown('is-active', NAME) or 'unknown'}"
    lines = [f"Service: {NAME} is {words} ({path()})."]
    if (restarts := _shown("show", "--property=NRestarts", "--value", NAME)) not in ("", "0"):
        since = _shown("show", "--property=ActiveEnterTimestamp", "--value", NAME)
        lines.append(f"Restarts of all parts by systemd: {restarts}, the last at {since}.")
    if place.wanted and not runs(place):
        lines.append("The stack does not run through it. Fix: `make up SERVICE=1`")
    return lines + _remarks()


def unit(place: State) -> str:
    """The text of the unit's file."""
    root = os.geteuid() == 0
    return adapt(_UNIT).format(
        folder=_plain(place.folder),
        config=_plain(place.supervisor_config),
        file=_plain(place.environment),
        command=" ".join(map(_word, [*supervisord.command(place), "--nodaemon"])).replace("$", "$$"),
        after=f"After=network.target\nRequiresMountsFor={_word(str(place.folder))}\n" if root else "",
        target="multi-user.target" if root else "default.target",
    )


def _mark(place: State) -> str:
    return f"\nWorkingDirectory={_plain(place.folder)}\n"


def _text() -> str:
    try:
        return path().read_text(encoding="utf-8")
    except OSError:
        return ""


def _plain(path: Path) -> str:
    """A path as the value of a setting that takes one, where only ``%`` has a meaning."""
    return str(path).replace("%", "%%")


def _word(word: str) -> str:
    """A word of a setting that takes several."""
    return _quoted(word).replace("%", "%%")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _remarks() -> list[str]:
    """What keeps a user's unit from running all the time."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        return []
    if (_LINGERING / user).exists():
        return [f"Lingering is on for {user}: it starts at boot and outlives logouts."]
    stops = f"Lingering is off for {user}: Stepwatch stops when you log out and starts when you log in."
    return [f"{stops} Fix: sudo loginctl enable-linger {user}"]


def _require_systemd() -> None:
    if problem := _refusal("show", "--property=Version"):
        user = os.geteuid() != 0
        manager = "systemd user manager" if user else "systemd"
        fix = "log in as this user (not by su or sudo), or " if user else ""
        raise StackError(
            f"`make up SERVICE=1`: no {manager} answers here ({problem}). "
            f"Expected: a machine that systemd runs. Fix: {fix}run `make up` alone and "
            "have it started at boot by other means (cron: @reboot)."
        )


def _order(*words: str) -> None:
    if problem := _refusal(*words):
        raise StackError(f"systemctl {' '.join(words)} failed. It says: {problem}")


def _refusal(*words: str) -> str:
    """The error of a systemctl command; empty on success."""
    answer = _ask(*words)
    return answer.stderr.strip() or f"exit code {answer.returncode}" if answer.returncode else ""


def _shown(*words: str) -> str:
    return _ask(*words).stdout.strip()


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Ask systemd; the exit code is that of a shell where there is no such command."""
    command = ("systemctl", *(() if os.geteuid() == 0 else ("--user",)), "--no-pager", *words)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return subprocess.CompletedProcess(command, _NO_COMMAND, "", "systemctl is not on PATH")

"""The one folder in which a native stack keeps all that it writes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.credentials import PASSWORD, make
from stepwatch.config import Config
from stepwatch.config.deployment import DISCOVERED, OnThisMachine
from stepwatch.render import layout
from stepwatch.schema.errors import Refused
from stepwatch.system.files import lock
from stepwatch.system.terminal import Say

VARIABLE = "STEPWATCH_STATE"


class StackError(Refused):
    """Raised for an obstacle on this machine; the text has the fix."""


class DamagedStateError(StackError):
    """Raised when a file that an earlier `make up` wrote cannot be understood."""

    def __init__(self, path: Path) -> None:
        fix = "Expected: what the last `make up` wrote. Fix: run `make up`, which writes it again."
        super().__init__(f"{path}: the file is damaged. {fix}")


class _Below:
    """A path below the state folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, state: State, _: object) -> Path:
        return state.folder / self._name


@dataclass(frozen=True)
class State:
    """The state folder and the paths in it; two stacks on one machine have two folders."""

    folder: Path

    logs = _Below("logs")
    rendered = _Below("rendered")  # holds <service>/generated
    discovered = _Below(DISCOVERED)  # files of targets that containers ask for
    credentials = _Below("credentials")  # of Prometheus and Alertmanager
    internal_password = _Below(f"credentials/{PASSWORD}")
    password = _Below("credentials/password")  # of people, for Grafana too
    supervisor_config = _Below("supervisord.conf")
    socket = _Below("supervisor.sock")
    environment = _Below("service.env")  # the variables that systemd gives to supervisord, mode 0600
    parts = _Below("parts.json")  # for `status` and `down`, which read no config.yaml
    _arguments = _Below("remembered.json")  # of the last `make up`

    @classmethod
    def chosen(cls, usual: Path) -> State:
        """The folder that the variable names, else the usual one; another user's is refused."""
        folder = Path(os.environ.get(VARIABLE) or usual).resolve()
        if folder.exists() and os.geteuid() not in (0, folder.stat().st_uid):
            raise StackError(
                f"{folder} belongs to another user, and so does the stack in it. "
                f"Fix: work as that user, or set {VARIABLE} to a folder of your own."
            )
        return cls(folder)

    @property
    def wanted(self) -> bool:
        """Whether the stack should run: started, and not stopped since then."""
        return self.supervisor_config.exists()

    def log(self, part: str) -> Path:
        """The log file of a part."""
        return self.logs / f"{part}.log"

    def data(self, part: str) -> Path:
        """What a part stores; it outlives `down`."""
        return self.folder / "data" / part

    def deployment(self, config: Config, parts: frozenset[str]) -> OnThisMachine:
        """What files are rendered for: these parts, with what is in this folder."""
        return OnThisMachine(
            config,
            parts,
            discovered=str(self.discovered),
            password_file=str(self.internal_password),
            agents_folder=str(layout.credentials()),
        )

    def config(self, say: Say) -> Path | None:
        """The configuration file of the last `make up`; ``say`` gets a line if that was lost."""
        path = self._remembered(say).get("config")
        return Path(path) if path else None

    def runs(self, configured: Path, say: Say) -> Path | None:
        """The runs that `make up RUNS=` named last, unless config.yaml names others since then."""
        known = self._remembered(say)
        return Path(known["runs"]) if known.get("instead_of") == str(configured) else None

    def log_folders(self, configured: Path, say: Say) -> tuple[str, ...]:
        """Return the folders or globs of logs that the stack watches; ``configured`` is `runs.path`."""
        simulated = self.data("demo-runs")
        watched = [self.runs(configured, say) or configured, *([simulated] if simulated.is_dir() else [])]
        return tuple(str(path.absolute()) for path in watched)

    def remember(self, config: Path, runs: Path | None, configured: Path, say: Say) -> None:
        """Save the arguments of `make up`: the file, and the folder of RUNS= in place of its `runs.path`."""
        self.create()
        named = {"runs": str(runs.absolute()), "instead_of": str(configured)} if runs else {}
        known = {**self._remembered(say), **named, "config": str(config.absolute())}
        write(self._arguments, json.dumps(known))

    def _remembered(self, say: Say) -> dict[str, str]:
        """The arguments of the last `make up`. A damaged file is moved aside: defaults replace them."""
        with suppress(DamagedStateError):
            known: dict[str, str] = read(self._arguments, dict) or {}
            if all(isinstance(text, str) for text in known.values()):
                return known
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = self._arguments.with_name(f"{self._arguments.name}.damaged-{stamp}")
        try:
            self._arguments.replace(aside)
            result = f"moved to {aside.name}"
        except FileNotFoundError:  # another command has just done so
            return {}
        except OSError as problem:
            result = f"not moved aside: {problem.strerror}"
        say(
            f"{self._arguments}: the file is damaged ({result}). It held what the last `make up` "
            "named in place of config.yaml and its runs.path; without it these are used. "
            "Fix: if the last `make up` named others, run `make up CONFIG=file RUNS=folder` with them."
        )
        return {}

    def create(self) -> None:
        """Make the folder, closed to other users."""
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            # Prometheus sees new files at once only in a folder that was there before.
            self.discovered.mkdir(exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as problem:
            expected = f"Expected: a folder to write to. Fix: set {VARIABLE} to one."
            raise StackError(f"{self.folder}: {problem.strerror}. {expected}") from None

    def make_password(self) -> None:
        """Create the credentials of Prometheus, Alertmanager and Grafana, unless they exist."""
        try:
            make(self.password, self.credentials, mode=0o600)
        except OSError as problem:
            raise StackError(
                f"{self.credentials}: {problem.strerror}. Expected: a folder to write to. "
                "Fix: free space on its disk, or make this user its owner."
            ) from None

    def give_up(self) -> None:
        """Prevent any restart of the stack by systemd or a reboot."""
        self.supervisor_config.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove what only a running stack needs; data and logs stay."""
        self.give_up()
        pid = self.folder / "supervisord.pid"
        for leftover in (self.environment, self.socket, self.parts, pid):
            leftover.unlink(missing_ok=True)

    @contextmanager
    def lock(self, command: str, say: Say) -> Iterator[None]:
        """Lock the stack, if there is one, against other commands that change it; say which one holds it."""
        if not self.folder.is_dir():
            yield
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        holder = self.folder / "changing"
        try:
            if not lock(handle, wait=False):
                other = holder.read_text(encoding="utf-8") if holder.exists() else "another command"
                say(f"Waiting for {other}, which is changing the stack.")
                lock(handle)
            with suppress(OSError):  # on a full disk the holder's name is missing; the lock holds
                write(holder, f"{command} (pid {os.getpid()})")
            try:
                yield
            finally:
                holder.unlink(missing_ok=True)
        finally:
            os.close(handle)


def write(path: Path, text: str) -> None:
    """Replace a file of the state folder in one step: a power cut leaves the old text or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path, kind: type) -> Any:
    """Return the JSON value of that kind in a file of the state folder, ``None`` if there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise DamagedStateError(path)
    return value

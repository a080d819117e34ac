"""The one folder in which a native stack keeps all that it writes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepwatch.deployment import DISCOVERED
from stepwatch.native.errors import StackError

VARIABLE = "STEPWATCH_STATE"


@dataclass(frozen=True)
class State:
    """The state folder and the places in it; two stacks on one machine have two folders."""

    folder: Path

    @classmethod
    def chosen(cls, checkout: Path) -> State:
        """The folder that the variable names, else `.stepwatch` in the checkout.

        Raises:
            StackError: it is another user's.
        """
        folder = Path(os.environ.get(VARIABLE) or checkout / ".stepwatch").resolve()
        if folder.exists() and os.geteuid() not in (0, folder.stat().st_uid):
            raise StackError(
                f"{folder} belongs to another user, and so does the stack in it. "
                f"Cure: work as that user, or set {VARIABLE} to a folder of your own."
            )
        return cls(folder)

    @property
    def mark(self) -> str:
        """What the processes of this stack carry in their environment."""
        return str(self.folder)

    @property
    def logs(self) -> Path:
        """One rotated log file per part, and the supervisor's own."""
        return self.folder / "logs"

    def log(self, name: str) -> Path:
        """The log file of a part."""
        return self.logs / f"{name}.log"

    def data(self, name: str) -> Path:
        """What a part stores; it outlives `down`."""
        return self.folder / "data" / name

    @property
    def discovered(self) -> Path:
        """Files of targets that are found by themselves."""
        return self.folder / DISCOVERED

    @property
    def supervisor_config(self) -> Path:
        """What supervisord is told to keep running."""
        return self.folder / "supervisord.conf"

    @property
    def socket(self) -> Path:
        """Where supervisord takes orders."""
        return self.folder / "supervisor.sock"

    @property
    def parts(self) -> Path:
        """The parts that were brought up, for `status` and `down`, which read no config.yaml."""
        return self.folder / "parts.json"

    def config(self) -> Path | None:
        """The configuration file of the last `make up`."""
        path = self._remembered().get("config")
        return Path(path) if path else None

    def runs(self, configured: Path) -> Path | None:
        """The runs that `make up RUNS=` named last, unless config.yaml names others since then."""
        known = self._remembered()
        return Path(known["runs"]) if known.get("instead_of") == str(configured) else None

    def remember(self, config: Path, runs: Path | None, configured: Path) -> None:
        """Keep what `make up` was told: the file, and what RUNS= named in place of its `runs.path`."""
        self.create()
        named = {"runs": str(runs.absolute()), "instead_of": str(configured)} if runs else {}
        known = {**self._remembered(), **named, "config": str(config.absolute())}
        write(self._memory, json.dumps(known))

    def _remembered(self) -> dict[str, str]:
        try:
            known: dict[str, str] = json.loads(self._memory.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return known

    @property
    def _memory(self) -> Path:
        return self.folder / "remembered.json"

    def create(self) -> None:
        """Make the folder, closed to other users.

        Raises:
            StackError: it cannot be made.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            # Prometheus sees new files at once only in a folder that was there before.
            self.discovered.mkdir(exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as problem:
            raise StackError(
                f"{self.folder}: {problem.strerror}. Expected: a folder to write to. "
                f"Cure: set {VARIABLE} to one."
            ) from None

    def forget(self) -> None:
        """Remove what only a running stack needs; data and logs stay."""
        for leftover in (self.supervisor_config, self.socket, self.parts, self.folder / "supervisord.pid"):
            leftover.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second `up` or `down` waiting until this one has done its changes."""
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def write(path: Path, text: str) -> None:
    """Replace a file of the state folder in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)

"""A stack of its own for a test, handled by the commands that users type."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwatch.config.sections import Ports
from stepwatch.system import processes
from stepwatch.system.environment import CHECKOUT
from tests.real import alertmanager, free_port, prometheus
from tests.real.credentials import sign_in
from tests.real.working import working_in

VERSIONS = {"oldest": ("2.42", "0.25"), "newest": ("3.13", "0.31")}
MAINLY_NEWEST = [pytest.param("oldest", marks=pytest.mark.world), "newest"]
"""For what depends little on the versions: `make test-world` tests the oldest ones."""
PORTS = tuple(Ports.model_fields)


def python_module(pid: int) -> str:
    """The name of the module that a Python process runs, empty for another process."""
    words = processes.words(pid)
    return words[2] if words[1:2] == ["-m"] else ""


@dataclass
class Installation:
    """A configuration and a state folder of their own; commands run as a user types them."""

    folder: Path
    environment: dict[str, str]
    ports: dict[str, int]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "my config.yaml"

    def configure(self, more: str = "") -> None:
        ports = "".join(f"  {name}: {port}\n" for name, port in self.ports.items())
        self.config.write_text(f"ports:\n{ports}{more}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            **self.environment,
            "STEPWATCH_STATE": str(self.state),
            "PYTHONPATH": str(CHECKOUT),
        }
        command = [sys.executable, "-m", "stepwatch", *words]
        return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run("up", *self.choice, "--runs", str(self.folder / "my runs"), *more)

    @property
    def choice(self) -> tuple[str, ...]:
        return ("--native", "--config", str(self.config))

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self.ports[part]}"

    def pids(self) -> set[int]:
        """Of every process, those that parts started included."""
        return working_in(self.state)

    def parts(self) -> set[int]:
        """The ids of the parts themselves, and of nothing that they start and end as they like."""
        supervisor = int((self.state / "supervisord.pid").read_text())
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        return set(map(int, children.read_text().split()))


def _programs(of_prometheus: str, of_alertmanager: str) -> dict[str, str]:
    return {
        "STEPWATCH_PROMETHEUS": str(prometheus(of_prometheus).server),
        "STEPWATCH_PROMTOOL": str(prometheus(of_prometheus).tool),
        "STEPWATCH_ALERTMANAGER": str(alertmanager(of_alertmanager).server),
        "STEPWATCH_AMTOOL": str(alertmanager(of_alertmanager).tool),
    }


def made(folder: Path, versions: str) -> Installation:
    """An installation in a folder, with the oldest or newest programs; nothing of it runs yet."""
    ports = {name: free_port() for name in PORTS}
    installation = Installation(folder / "a place", _programs(*VERSIONS[versions]), ports)
    installation.folder.mkdir()
    sign_in(installation.state / "credentials", ports["prometheus"], ports["alertmanager"])
    installation.configure()
    return installation

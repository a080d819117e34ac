"""A wheel of this checkout, installed into an environment of its own, and the users who run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

from stepwatch.config.sections import Ports
from stepwatch.system.environment import CHECKOUT
from tests.real import alertmanager, free_port, prometheus
from tests.real.copies import copy_checkout
from tests.real.credentials import sign_in
from tests.real.tools import unavailable
from tests.real.working import working_in

_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
_READ_ONLY = 'mount --bind -o ro "$0" "$0" && exec "$@"'


def built(folder: Path) -> Path:
    """Build the source distribution, and the wheel from it, as a release does; return the wheel."""
    copy_checkout(folder / "checkout")
    done = _python("-c", _SDIST, str(folder), cwd=folder / "checkout")
    archive = folder / done.stdout.splitlines()[-1]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    _python("-m", "pip", "wheel", *options, str(archive), cwd=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, place: Path) -> None:
    """Install a wheel with its dependencies, in the locked versions, from the package index."""
    venv.create(place)
    lock = (CHECKOUT / "requirements.lock").read_text()
    versions = place / "versions"
    versions.write_text("\n".join(re.findall(r"^\S+==[^\\\n]+", lock, re.MULTILINE)))
    options = ["--quiet", "--disable-pip-version-check", "--constraint", str(versions)]
    command = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", *options]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    if done.returncode and re.search(r"NewConnectionError|timed? ?out|name resolution", done.stderr):
        unavailable("the package index does not answer")
    assert not done.returncode, done.stderr


@dataclass
class User:
    """Someone with a home folder, where nothing is at first, and an environment that cannot be written."""

    home: Path
    place: Path
    variables: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in Ports.model_fields})

    def __post_init__(self) -> None:
        self.home.mkdir()

    @property
    def config(self) -> Path:
        return self.home / ".config/stepwatch/config.yaml"

    @property
    def state(self) -> Path:
        return self.home / ".local/state/stepwatch"

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **self.variables, **variables}
        return subprocess.run(
            [*self._read_only(), str(self.place / "bin/stepwatch"), *words],
            env=environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self.ports[part]}"

    def use_free_ports(self) -> None:
        """Add the ports to what the first `up` wrote, and sign in there."""
        sign_in(self.state / "credentials", self.ports["prometheus"], self.ports["alertmanager"])
        with self.config.open("a") as file:
            file.write("".join(["ports:\n", *(f"  {name}: {port}\n" for name, port in self.ports.items())]))

    def processes(self) -> set[int]:
        """Those of this user's stack."""
        return working_in(self.state)

    def _read_only(self) -> list[str]:
        """What makes the environment read-only: a mount for root, whom modes do not stop."""
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "a-w", self.place], check=True)
            return []
        return ["unshare", "--mount", "sh", "-c", _READ_ONLY, str(self.place)]


def programs() -> dict[str, str]:
    """The variables that name the newest Prometheus and Alertmanager."""
    servers = {"PROMETHEUS": prometheus("3.13"), "ALERTMANAGER": alertmanager("0.31")}
    return {f"STEPWATCH_{name}": str(tool.server) for name, tool in servers.items()}


def _python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done

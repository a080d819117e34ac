"""Docker of the tests' own: the client with Compose, and an engine, gone with the ``with`` block."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from stepwatch.system.environment import CHECKOUT
from stepwatch.system.files import last_lines
from tests.real import images
from tests.real.build import BuildError, version
from tests.real.images import ImageError, StandIn
from tests.real.tools import newest, unavailable

_PATIENCE = 90


class Client:
    """The docker command with Compose, apart from the user's own; ``env`` is what it runs with."""

    def __init__(self) -> None:
        _require("docker")
        self._scratch = tempfile.TemporaryDirectory(prefix="stepwatch-docker-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        plugins = self.folder / "client" / "cli-plugins"
        plugins.mkdir(parents=True)
        (plugins / "docker-compose").symlink_to(_compose())
        host = f"unix://{self.folder}/docker.sock"
        self.env = {**os.environ, "DOCKER_HOST": host, "DOCKER_CONFIG": str(self.folder / "client")}

    def docker(self, *words: str | Path, timeout: float = 300) -> str:
        """Run the client; return what it prints."""
        done = subprocess.run(
            ["docker", *map(str, words)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert done.returncode == 0, f"docker {' '.join(map(str, words))}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scratch.cleanup()


class Docker(Client):
    """An engine that is up while the ``with`` block runs; others of ours wait for its end.

    All engines of a machine share its netfilter tables: one that starts flushes the chains in which another
    just publishes a port.
    """

    def __init__(self) -> None:
        _require("dockerd", "iptables", "setpriv")
        if os.geteuid() != 0:
            unavailable("a Docker Engine of our own takes root")
        super().__init__()
        # An engine whose test was killed would hold networks that the next one needs.
        self.command = ["setpriv", "--pdeathsig=TERM", "dockerd"]
        self.command += [f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec"]
        self.command += [f"--pidfile={self.folder}/pid", f"--host={self.env['DOCKER_HOST']}"]
        # Away from the networks that the machine may have.
        self.command += [f"--bip={BRIDGE}/24", "--default-address-pool=base=10.214.0.0/16,size=24"]
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, images: dict[str, StandIn]) -> None:
        """Have images of these names."""
        for tag, standin in images.items():
            changes = [f"--change={change}" for change in standin.changes]
            self.docker("import", *changes, standin.archive, tag)

    def __enter__(self) -> Self:
        self._turn = (Path(tempfile.gettempdir()) / "stepwatch-tests-docker.lock").open("wb")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        self._wait()
        return self

    def _wait(self) -> None:
        assert self._process
        deadline = time.monotonic() + _PATIENCE
        asked = ["docker", "version", "--format={{.Server.Version}}"]
        while subprocess.run(asked, env=self.env, capture_output=True, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                raise AssertionError("dockerd did not start:\n" + "\n".join(self.log()))
            time.sleep(0.2)

    def log(self) -> list[str]:
        """The last lines of the engine's log."""
        return last_lines(self.folder / "log", 20)

    def _stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._turn.close()
        super().__exit__(kind, problem, trace)


PYTHON = "python:3.12-slim"
BRIDGE = "10.213.0.1"
"""This machine's address on the engine's own bridge: `host.docker.internal` in containers."""
NODE_EXPORTER = f"prom/node-exporter:v{version('node_exporter')}"


def standins() -> dict[str, StandIn]:
    """Every stand-in, by the official image whose place it takes."""
    try:
        return {
            f"prom/prometheus:v{version('prometheus')}": images.prometheus(),
            f"prom/alertmanager:v{version('alertmanager')}": images.alertmanager(),
            NODE_EXPORTER: images.node_exporter(),
            _grafana(): images.grafana(),
            PYTHON: images.python(),
        }
    except (ImageError, BuildError) as problem:
        unavailable(f"stand-in images: {problem}")


def _grafana() -> str:
    (image,) = re.findall(r"grafana/grafana:[\d.]+", (CHECKOUT / "compose.yaml").read_text())
    return image


def prepare() -> None:
    """Have all that an engine of our own needs."""
    _require("docker", "dockerd", "iptables")
    standins()
    _compose()


def _require(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            unavailable(f"{program} is not on PATH")


def _compose() -> Path:
    try:
        # Go names the program after its package, the release after the project.
        (program,) = newest("compose").iterdir()
    except BuildError as problem:
        unavailable(f"Compose: {problem}")
    return program

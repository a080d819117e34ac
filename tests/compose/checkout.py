"""A copy of the checkout as a user has it after cloning, and a stack brought up from it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.real import free_port
from tests.real.copies import copy_checkout
from tests.real.docker import Client
from tests.real.waiting import eventually

PUBLISHED = ("exporter", "gpu", "prometheus", "alertmanager", "grafana")


class Checkout:
    """A fresh clone in a folder, driven by the commands that users have.

    Its config.yaml gets free ports, a place for a Ray that is not this machine's, and ``settings`` in place
    of the shipped ones.
    """

    def __init__(self, folder: Path, docker: Client, settings: dict[str, Any] | None = None) -> None:
        self.folder, self.docker = folder, docker
        copy_checkout(folder)
        (folder / ".venv").symlink_to(CHECKOUT / ".venv")
        self.ports = {part: free_port() for part in (*PUBLISHED, "node", "bridge")}
        self._read = ""
        http_client.sign_in(self._password)
        self.config = folder / "config.yaml"
        self.ray = folder.parent / "above" / "ray"
        self.ray.parent.mkdir(mode=0o755)
        self._shipped = yaml.safe_load(self.config.read_text())
        self.write(settings or {})

    def write(self, settings: dict[str, Any]) -> None:
        """Edit config.yaml: what is shipped, these settings, and free ports."""
        ours = {"ports": self.ports, "discovery": {"ray": str(self.ray)}}
        self.config.write_text(yaml.safe_dump({**self._shipped, **settings, **ours}))

    def run(self, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout."""
        env = {**self.docker.env, "PYTHONPATH": str(self.folder)}
        env.pop("STEPWATCH_STATE", None)
        return subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=timeout
        )

    def stepwatch(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What `make up`, `make status` and so on run."""
        return self.run(sys.executable, "-m", "stepwatch", *words)

    def compose(self, *words: str) -> str:
        """A command of Compose that must succeed."""
        done = self.run("docker", "compose", *words)
        assert done.returncode == 0, f"docker compose {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def containers(self) -> dict[str, dict[str, Any]]:
        """What Docker knows of each running container, by service."""
        ids = self.docker.docker("ps", "--quiet", "--filter=label=com.docker.compose.project").split()
        found = json.loads(self.docker.docker("inspect", *ids)) if ids else []
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in found}

    @contextmanager
    def running(self, *profiles: str) -> Iterator[Checkout]:
        """The stack, from `make up` until nothing of it is left."""
        done = self.stepwatch("up")
        try:
            assert done.returncode == 0, done.stdout + done.stderr
            yield self
        finally:
            options = [f"--profile={name}" for name in profiles]
            self.run("docker", "compose", *options, "down", "--volumes", "--timeout=5")

    def url(self, part: str) -> str:
        """Where a part is reached."""
        return f"http://127.0.0.1:{self.ports[part]}"

    def _password(self, address: str) -> str | None:
        for part in ("prometheus", "alertmanager"):
            if address == f"127.0.0.1:{self.ports[part]}":
                if not self._read:
                    self._read = self.compose("exec", "-T", part, "cat", "/run/stepwatch/internal-password")
                return self._read
        return None

    def page(self, part: str, path: str) -> Any:
        """A JSON page of a part."""
        with http_client.direct.open(f"{self.url(part)}{path}", timeout=10) as answer:
            return json.load(answer)

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        asked = urllib.parse.urlencode({"query": promql})
        result: list[dict[str, Any]] = self.page("prometheus", f"/api/v1/query?{asked}")["data"]["result"]
        return result

    def firing(self) -> set[tuple[str, str]]:
        """Name and run of each alert that Alertmanager holds."""
        alerts = self.page("alertmanager", "/api/v2/alerts")
        return {(alert["labels"]["alertname"], alert["labels"].get("run", "")) for alert in alerts}


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""

    def holds() -> object:
        with suppress(OSError):  # a part that is just starting again
            return condition()
        return False

    eventually(holds, pause=0.5, seen=lambda: what)

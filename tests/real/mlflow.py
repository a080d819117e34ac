"""A real MLflow: its server on SQLite, and its own client, both in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from tests.real import environments
from tests.real.server import Server, free_port

CLIENT = Path(__file__).with_name("mlflow_client.py")

_QUIET = {
    **os.environ,
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven more processes that nobody needs here
}


def environment() -> Path:
    """The programs of MLflow's environment."""
    return environments.programs("mlflow")


class MlflowServer(Server):
    """A tracking server; what it knows outlives a restart, and goes with the ``with`` block."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([], f"{self.url}/health", env=_QUIET, patience=120)
        self.command = [
            *(str(environment() / "mlflow"), "server", "--workers=1"),
            *("--host=127.0.0.1", f"--port={self.port}"),
            f"--backend-store-uri=sqlite:///{self.folder}/mlflow.db",
            f"--artifacts-destination={self.folder}/artifacts",
        ]


class MlflowClient:
    """MLflow's own client in a process of its own, while the ``with`` block runs."""

    def __init__(self, url: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long-lived as the process)
        # Isolated: beside the script lie modules that are called like packages which MLflow imports.
        command = [environment() / "python", "-I", CLIENT, url]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=_QUIET
        )

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Call a function of the script by name."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise AssertionError(f"MLflow's client: {self._errors.read()[-2000:]}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._errors.close()

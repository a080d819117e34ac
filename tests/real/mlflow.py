"""A real MLflow: its server on SQLite, and its own client, both in an environment of their own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.real import environments
from tests.real.script import Script
from tests.real.server import Server, free_port

CLIENT = Path(__file__).with_name("mlflow_client.py")

_QUIET = {
    **os.environ,
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven more processes that no one needs here
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


class MlflowClient(Script):
    """MLflow's own client of the server at this address, while the ``with`` block runs."""

    def __init__(self, url: str) -> None:
        super().__init__(environment() / "python", CLIENT, url, env=_QUIET)

"""Prometheus and Alertmanager on free ports, each with a data folder of its own."""

from __future__ import annotations

from pathlib import Path

from tests.real.server import Server, free_port
from tests.real.tools import alertmanager, prometheus


class PrometheusServer(Server):
    """A Prometheus; its data outlives a kill, and goes with the ``with`` block.

    Args:
        version: "2.42" or "3.13".
        config_dir: The folder that holds ``prometheus.yml``.
        port: Where it listens, a free port if not given.
        options: More words for its command line.
    """

    def __init__(
        self, version: str, config_dir: Path, *, port: int | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self.tool = prometheus(version)
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([], f"{self.url}/-/ready")
        self.command = [
            str(self.tool.server),
            *self.tool.options,
            f"--config.file={config_dir}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *options,
        ]


class AlertmanagerServer(Server):
    """An Alertmanager; silences and its memory of messages sent outlive a kill.

    Args:
        version: "0.25" or "0.31".
        config_dir: The folder that holds ``alertmanager.yml``.
        port: Where it listens, a free port if not given.
        options: More words for its command line.
    """

    def __init__(
        self, version: str, config_dir: Path, *, port: int | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self.tool = alertmanager(version)
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([], f"{self.url}/-/ready")
        self.command = [
            str(self.tool.server),
            *self.tool.options,
            f"--config.file={config_dir}/alertmanager.yml",
            f"--storage.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
            *options,
        ]

"""Prometheus and Alertmanager on free ports, each with a data folder of its own."""

from __future__ import annotations

from pathlib import Path

from tests.real.server import Server, free_port
from tests.real.tools import Tool, alertmanager, prometheus


class _Ours(Server):
    """One of the two; its data outlives a kill, and goes with the ``with`` block."""

    def __init__(self, tool: Tool, port: int | None) -> None:
        self.tool = tool
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__([], f"{self.url}/-/ready")
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        self.command = [str(tool.server), *tool.options, listen]


class PrometheusServer(_Ours):
    """Prometheus "2.42" or "3.13" with the ``prometheus.yml`` of a folder."""

    def __init__(
        self, version: str, config_dir: Path, *, port: int | None = None, options: tuple[str, ...] = ()
    ) -> None:
        super().__init__(prometheus(version), port)
        self.command += [
            f"--config.file={config_dir}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
        ]
        self.command += options


class AlertmanagerServer(_Ours):
    """Alertmanager "0.25" or "0.31" with the ``alertmanager.yml`` of a folder."""

    def __init__(
        self, version: str, config_dir: Path, *, port: int | None = None, options: tuple[str, ...] = ()
    ) -> None:
        super().__init__(alertmanager(version), port)
        self.command += [f"--config.file={config_dir}/alertmanager.yml", f"--storage.path={self.folder}/data"]
        self.command += ["--cluster.listen-address=", *options]

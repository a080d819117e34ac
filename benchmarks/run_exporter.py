"""The run exporter as a process of its own, to be measured from outside."""

from __future__ import annotations

import http.client
import sys
import time
from pathlib import Path

from tests.real import Server, free_port

ROOT = Path(__file__).parents[1]


class RunExporter(Server):
    """The exporter of one folder, up while the ``with`` block runs; ``flags`` are more of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._port = free_port()
        command = [sys.executable, "-m", "exporter.runs", f"--path={folder}", f"--port={self._port}", *flags]
        super().__init__(command, f"http://127.0.0.1:{self._port}/-/healthy", cwd=ROOT)

    def page(self, path: str = "/metrics") -> bytes:
        """A page, on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def wait_for(self, text: bytes) -> None:
        """Wait until it stands on the page."""
        while text not in self.page():
            time.sleep(0.01)

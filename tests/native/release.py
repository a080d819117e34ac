from __future__ import annotations

import sys
from pathlib import Path

SERVER = """#!{python}
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if sys.argv[1:] == ["--version"]:
    sys.exit(print("grafana version {version}"))
class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer((os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])), Pages).serve_forever()
"""


def unpacked_release(folder: Path, version: str = "11.2.0") -> Path:
    """A stand-in for an unpacked Grafana; returns its folder of programs."""
    program = folder / "bin/grafana"
    for file in (program, folder / "conf/defaults.ini"):
        file.parent.mkdir(parents=True)
        file.touch()
    program.write_text(SERVER.format(python=sys.executable, version=version))
    program.chmod(0o755)
    return program.parent

"""A mirror of official releases on 127.0.0.1, as good or as bad as a test wants it."""

from __future__ import annotations

import hashlib
import io
import platform
import tarfile
from http.server import BaseHTTPRequestHandler

from tests.real.listening import Listening

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def stem(name: str, version: str) -> str:
    """What a release is called on this machine."""
    return f"{name}-{version}.linux-{ARCHITECTURE}"


def standin(name: str, version: str) -> bytes:
    """A program that does nothing but tell its version."""
    return f"#!/bin/sh\necho '{name}, version {version} (branch: HEAD)'\n".encode()


def tarball(top: str, files: dict[str, bytes], *odd: tarfile.TarInfo) -> bytes:
    """A release's archive: programs below one folder, and whatever odd entries a test wants."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for entry in odd:
            archive.addfile(entry)
    return packed.getvalue()


class Mirror(Listening):
    """Serves files while the ``with`` block runs.

    ``asked`` are the paths that were asked for. ``cut`` is how many bytes of each archive are held
    back, although its length is reported in full.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut = 0
        super().__init__(self._handler())
        self.url += "/mirror"

    def publish(self, name: str, version: str, archive: bytes, *, sha256: str | None = None) -> None:
        """Offer an archive as the Prometheus project does, with its checksum unless another one is given."""
        file = f"{stem(name, version)}.tar.gz"
        other = f"{'0' * 64}  {name}-{version}.darwin-amd64.tar.gz\n"
        line = f"{sha256 or hashlib.sha256(archive).hexdigest()}  {file}\n"
        base = f"/mirror/prometheus/{name}/releases/download/v{version}"
        self.files |= {f"{base}/{file}": archive, f"{base}/sha256sums.txt": f"{other}{line}".encode()}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                content = mirror.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                held_back = mirror.cut if self.path.endswith(".tar.gz") else 0
                self.wfile.write((content or b"")[: len(content or b"") - held_back])

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler

"""What our image adds to its base, layer by layer, compressed as a registry hands it out.

The base of the build is a stand-in, since no registry is asked here; what the official one takes is
written down with its source.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from exporter import __version__
from tests.compose.checkout import Checkout
from tests.real.docker import Docker, standins

IMAGE = f"localhost/stepwatch/exporter:{__version__}"
MB = 1e6
BASE = {"Debian": 29_780_765, "its certificates and time zones": 1_293_276, "Python 3.12": 12_113_982}
"""Of python:3.12-slim for amd64, August 2026: docker-library/repo-info, repos/python/remote/3.12-slim.md."""


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, Docker() as docker:
        docker.load(standins())
        Checkout(Path(folder) / "stepwatch", docker).compose("build", "--quiet", "exporter")
        ours = list(_layers(docker, Path(folder) / "image.tar"))
    yield "| layer | compressed, MB |"
    yield "|---|---|"
    for name, size in (*BASE.items(), *ours):
        yield f"| {name} | {size / MB:.2f} |"
    added = sum(size for _, size in ours)
    yield f"| what we add | {added / MB:.2f} |"
    yield f"| the whole image | {(added + sum(BASE.values())) / MB:.1f} |"


def _layers(docker: Docker, archive: Path) -> Iterator[tuple[str, int]]:
    """The command that made each layer above the base, and its size."""
    docker.docker("save", f"--output={archive}", IMAGE)
    history = docker.docker("history", "--no-trunc", "--format={{json .}}", IMAGE).splitlines()
    steps = [json.loads(line) for line in reversed(history)]
    commands = [step["CreatedBy"] for step in steps if step["Size"] != "0B"]
    with tarfile.open(archive) as tar:
        names = json.loads(_content(tar, "manifest.json"))[0]["Layers"]
        filled = [content for name in names if _files(content := _content(tar, name))]
    for command, content in list(zip(commands, filled, strict=True))[1:]:
        yield f"`{_short(command)}`", len(gzip.compress(content, 6))


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _files(layer: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return [member.name for member in tar if member.isfile()]


def _short(command: str) -> str:
    said = command.partition("#(nop)")[2] or command.partition("-c ")[2] or command
    return re.sub(r"dir:\w+ in ", "", " ".join(said.split()))

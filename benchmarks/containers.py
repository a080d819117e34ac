"""The demo in containers: how soon its alerts fire, what memory each container takes; and our image's size.

Images are there already, as after a first pull.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import picture
from benchmarks.measure import table
from exporter import __version__
from tests.compose.checkout import Checkout
from tests.real.docker import Docker, standins

ALERTS = ("KLExplosion", "RewardStagnation", "Stalled", "GPUXid")
PATIENCE = 240
MIB = 2**20
IMAGE = f"localhost/stepwatch/exporter:{__version__}"
BASE = {"Debian": 29_780_765, "its certificates and time zones": 1_293_276, "Python 3.12": 12_113_982}
"""Of python:3.12-slim for amd64, August 2026: docker-library/repo-info, repos/python/remote/3.12-slim.md."""


def containers() -> Iterator[str]:
    """Measure both, and draw the picture of the README."""
    with tempfile.TemporaryDirectory() as folder, Docker() as docker:
        docker.load(standins())
        checkout = Checkout(Path(folder) / "stepwatch", docker)
        checkout.compose("--profile=demo", "build", "--quiet")
        begun = time.time()
        try:
            yield from _alerts(checkout, begun)
            yield ""
            yield from _memory(checkout)
            picture.FILE.write_text(picture.draw(checkout.url("prometheus"), begun), encoding="utf-8")
        finally:
            checkout.compose("--profile=demo", "down", "--volumes", "--timeout=5")


@table("from `up` to", "seconds")
def _alerts(checkout: Checkout, begun: float) -> Iterator[tuple[object, ...]]:
    done = checkout.stepwatch("up", "--demo")
    assert done.returncode == 0, done.stdout + done.stderr
    yield "all containers healthy", f"{time.time() - begun:.0f}"
    waiting = set(ALERTS)
    while waiting:
        for name in sorted(waiting & {name for name, _ in checkout.firing()}):
            yield f"{name} in Alertmanager", f"{time.time() - begun:.0f}"
            waiting.remove(name)
        assert time.time() - begun < PATIENCE, f"still silent: {waiting}"
        time.sleep(0.5)
    time.sleep(20)  # so that the picture shows what comes after


@table("container", "memory, MiB", "limit, MiB", "of it")
def _memory(checkout: Checkout) -> Iterator[tuple[object, ...]]:
    """Working set after the demo's three minutes, as the limit counts it."""
    units = {"GiB": 1024.0, "MiB": 1.0, "KiB": 1 / 1024, "B": 1 / MIB}
    stats = checkout.docker.docker("stats", "--no-stream", "--format={{json .}}").splitlines()
    used = {each["ID"]: each["MemUsage"].split(" / ")[0] for each in map(json.loads, stats)}
    for name, container in sorted(checkout.containers().items()):
        text = used[container["Id"][:12]]
        unit = next(unit for unit in units if text.endswith(unit))
        mib = float(text.removesuffix(unit)) * units[unit]
        limit = container["HostConfig"]["Memory"] / MIB
        yield name, f"{mib:.1f}", f"{limit:.0f}", f"{100 * mib / limit:.0f} %"


@table("layer", "compressed, MB")
def image() -> Iterator[tuple[object, ...]]:
    """What our image adds to its base, layer by layer, compressed as a registry hands it out.

    The build has another base here, since no registry is asked; the size of the official one is written down
    with its source.
    """
    with tempfile.TemporaryDirectory() as folder, Docker() as docker:
        docker.load(standins())
        Checkout(Path(folder) / "stepwatch", docker).compose("build", "--quiet", "exporter")
        ours = list(_layers(docker, Path(folder) / "image.tar"))
    added = sum(size for _, size in ours)
    for name, size in (*BASE.items(), *ours, ("what we add", added)):
        yield name, f"{size / 1e6:.2f}"
    yield "the whole image", f"{(added + sum(BASE.values())) / 1e6:.1f}"


def _layers(docker: Docker, archive: Path) -> Iterator[tuple[str, int]]:
    """The command that made each layer above the base, and its size."""
    docker.docker("save", f"--output={archive}", IMAGE)
    history = docker.docker("history", "--no-trunc", "--format={{json .}}", IMAGE).splitlines()
    steps = [json.loads(line) for line in reversed(history)]
    commands = [step["CreatedBy"] for step in steps if step["Size"] != "0B"]
    with tarfile.open(archive) as tar:
        names = json.loads(_content(tar, "manifest.json"))[0]["Layers"]
        filled = [content for name in names if _has_files(content := _content(tar, name))]
    for command, content in list(zip(commands, filled, strict=True))[1:]:
        said = command.partition("#(nop)")[2] or command.partition("-c ")[2] or command
        short = re.sub(r"dir:\w+ in ", "", " ".join(said.split()))
        yield f"`{short}`", len(gzip.compress(content, 6))


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _has_files(layer: bytes) -> bool:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return any(member.isfile() for member in tar)

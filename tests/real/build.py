"""Builds programs from their Go modules, where no official release can be downloaded."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).resolve().parent.parent / "tools"
LEAST_GO = (1, 26)


class BuildError(Exception):
    """Raised when a program cannot be built here; says why."""


@dataclass(frozen=True)
class Module:
    """A Go module, its version as the project itself counts, and where the programs keep theirs."""

    path: str
    scale: int
    stamp: str


_COMMON = "github.com/prometheus/common/version.Version"
# A module at version 2 or later must say so in its path. Prometheus does not: its 3.13.5 is v0.313.5.
_KNOWN = {
    "prometheus": Module("github.com/prometheus/prometheus", 100, _COMMON),
    "alertmanager": Module("github.com/prometheus/alertmanager", 100, _COMMON),
    "node_exporter": Module("github.com/prometheus/node_exporter", 0, _COMMON),
    "compose": Module("github.com/docker/compose/v5", 0, "github.com/docker/compose/v5/internal.Version"),
}


def version(name: str) -> str:
    """The release that `tests/tools/<name>/go.mod` pins, as the project itself counts."""
    module = _KNOWN[name]
    text = (MODULES / name / "go.mod").read_text()
    pinned = re.search(rf"{re.escape(module.path)} v(\d+)\.(\d+)\.(\d+)", text)
    if not pinned:
        raise BuildError(f"tests/tools/{name}/go.mod pins no version of {name}")
    major, minor, patch = map(int, pinned.groups())
    if module.scale:
        major, minor = divmod(minor, module.scale)
    return f"{major}.{minor}.{patch}"


def build(name: str, place: Path) -> Path:
    """Build a project's programs into ``bin`` of a new folder; return that folder.

    Raises:
        BuildError: Go is missing or too old, or the build failed.
    """
    _require_go()
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}-") as scratch:
        fresh = Path(scratch) / "fresh"
        (fresh / "bin").mkdir(parents=True)
        _go_build(name, fresh / "bin")
        fresh.rename(place)
    return place / "bin"


def _require_go() -> None:
    go = shutil.which("go")
    answer = (
        go and subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    )
    number = re.match(r"go(\d+)\.(\d+)", answer or "")
    if not number or (int(number[1]), int(number[2])) < LEAST_GO:
        found = answer.strip() if answer else "none"
        raise BuildError(f"Go 1.26 or later is needed to build it, found: {found}")


def _go_build(name: str, folder: Path) -> None:
    stamp = f"-s -w -X {_KNOWN[name].stamp}={version(name)}"
    # cgo would tie the programs to this machine's loader; the listing of tools stands in go.mod.
    command = ["env", "CGO_ENABLED=0", "go", "build", "-ldflags", stamp, "-o", f"{folder}/", "tool"]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=MODULES / name, stdout=output, stderr=output)
        while _runs(process):
            say(f"  still building {name} ({time.monotonic() - begun:.0f} s)")
        if process.returncode:
            output.seek(0)
            raise BuildError(f"go build of {name} failed: {output.read()[-2000:]}")
    say(f"  built {name} in {time.monotonic() - begun:.0f} s")


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        return True
    return False


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Keep others from making the same thing at the same time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f".{place.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()

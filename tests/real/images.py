"""Stand-ins for the official images, made of the same programs, since no image registry is asked.

They are files for `docker import`, kept with the built programs.
"""

from __future__ import annotations

import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwatch.system.releases import tools_folder
from tests.real.build import locked, version
from tests.real.tools import newest

CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_BUSYBOX = Path("/bin/busybox")
_DEBIAN_PYTHON = "python3,python3-pip,python3-venv,ca-certificates"


class ImageError(Exception):
    """Raised when a stand-in cannot be made here; says why."""


@dataclass(frozen=True)
class StandIn:
    """An archive with the content of an image, and its settings (`docker import --change`)."""

    archive: Path
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """Who the image's process runs as, and the folder that is its own."""

    folder: str
    user: int


_EDITION = "-2"
"""Of what is packed besides a release: archives are kept by their names."""

_TEXTS = {"etc/passwd": "nobody:x:65534:65534:nobody:/:/bin/false\n"}


def prometheus() -> StandIn:
    """With promtool, and `sh`, `wget` and `cat` as the official image has them."""
    programs = newest("prometheus")
    files = {f"bin/{name}": programs / name for name in ("prometheus", "promtool")}
    data = Data("prometheus", 65534)
    return _scratch("prometheus", version("prometheus"), files, entry="bin/prometheus", data=data)


def alertmanager() -> StandIn:
    """With amtool, `sh`, `wget` and `cat`."""
    programs = newest("alertmanager")
    files = {f"bin/{name}": programs / name for name in ("alertmanager", "amtool")}
    data = Data("alertmanager", 65534)
    return _scratch("alertmanager", version("alertmanager"), files, entry="bin/alertmanager", data=data)


def node_exporter() -> StandIn:
    """With `sh` and `wget`."""
    files = {"bin/node_exporter": newest("node_exporter") / "node_exporter"}
    data = Data("home", 65534)
    return _scratch("node_exporter", version("node_exporter"), files, entry="bin/node_exporter", data=data)


def python() -> StandIn:
    """The distribution's Python in its smallest system, as a base to build on."""
    archive = tools_folder() / "image-python-bookworm.tar"
    with locked(archive):
        if not archive.exists():
            _bootstrap(archive)
    return StandIn(archive, (f"ENV PIP_CERT=/{CERTIFICATES}", 'CMD ["python3"]'))


def grafana() -> StandIn:
    """No Grafana: a server that wants the same files, user and folders, and answers as healthy."""
    texts = {"start": _GRAFANA, "www/api/health": "ok"}
    return _scratch(
        "grafana",
        "none-4",
        {"bin/httpd": _BUSYBOX},
        texts,
        entry="start",
        data=_GRAFANA_DATA,
    )


_GRAFANA = """#!/bin/sh
set -e
test -s "$GF_SECURITY_ADMIN_PASSWORD__FILE"
test -s "$GF_PATHS_PROVISIONING/datasources/stepwatch.yaml"
test -s /run/stepwatch/internal-password
test -s "$STEPWATCH_DASHBOARDS/training.json"
echo started >> /var/lib/grafana/starts
exec /bin/httpd -f -p 3000 -h /www
"""
_GRAFANA_DATA = Data("var/lib/grafana", 472)


def _scratch(
    name: str,
    release: str,
    files: dict[str, Path],
    texts: dict[str, str] | None = None,
    *,
    entry: str,
    data: Data,
) -> StandIn:
    archive = tools_folder() / f"image-{name}-{release}{_EDITION}.tar"
    with locked(archive):
        if not archive.exists():
            _pack(archive, files, {**_TEXTS, **(texts or {})}, data)
    return StandIn(archive, (f'ENTRYPOINT ["/{entry}"]', f"USER {data.user}"))


def _pack(archive: Path, files: dict[str, Path], texts: dict[str, str], data: Data) -> None:
    if not _BUSYBOX.exists():
        raise ImageError(f"there is no {_BUSYBOX}")
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.stem}-") as scratch:
        fresh = Path(scratch) / archive.name
        with tarfile.open(fresh, "w") as tar:
            busybox = {f"bin/{name}": _BUSYBOX for name in ("sh", "wget", "cat")}
            for place, file in {**files, **busybox}.items():
                tar.add(file.resolve(), place)
            for place, text in texts.items():
                _add(tar, place, text.encode())
            _add_folder(tar, "tmp", 0o1777, 0)
            _add_folder(tar, data.folder, 0o755, data.user)
        fresh.rename(archive)


def _add_folder(tar: tarfile.TarFile, name: str, mode: int, owner: int) -> None:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, mode, owner, owner
    tar.addfile(folder)


def _add(tar: tarfile.TarFile, place: str, content: bytes) -> None:
    file = tarfile.TarInfo(place)
    file.mode, file.size = 0o755, len(content)
    tar.addfile(file, io.BytesIO(content))


def _bootstrap(archive: Path) -> None:
    if not shutil.which("debootstrap"):
        raise ImageError("debootstrap is not on PATH")
    sys.stderr.write("Making a base image for Python with debootstrap, once (a minute) ...\n")
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.stem}-") as scratch:
        root = Path(scratch) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={_DEBIAN_PYTHON}", "bookworm", str(root)]
        if platform.freedesktop_os_release()["ID"] == "debian":  # elsewhere the default mirror of debootstrap
            command.append(_mirror())
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImageError(f"debootstrap: {done.stdout[-500:]}{done.stderr[-500:]}")
        # A proxy's own certificate authority, if there is one, must be known inside as well.
        shutil.copyfile(f"/{CERTIFICATES}", root / CERTIFICATES)
        fresh = Path(scratch) / archive.name
        subprocess.run(["tar", "-C", root, "-cf", fresh, "."], check=True)
        fresh.rename(archive)


def _mirror() -> str:
    for line in _sources():
        if found := re.match(r"(?:URIs:|deb(?: \[.*\])?)\s+(\S+)", line):
            return found[1]
    raise ImageError("apt names no mirror of the distribution")


def _sources() -> Iterator[str]:
    folder = Path("/etc/apt")
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        if file.exists():
            yield from file.read_text().splitlines()

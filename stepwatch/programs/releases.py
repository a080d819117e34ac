"""Official releases: downloaded, checked against their published checksums, kept in the user's cache."""

from __future__ import annotations

import gzip
import os
import platform
import re
import shutil
import tarfile
import tempfile
import urllib.parse
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stepwatch.programs.packages import keep, tools_folder
from stepwatch.system.terminal import Say

VARIABLE = "STEPWATCH_RELEASES"
"""Names a mirror in place of ``BASE``."""
BASE = "https://github.com"

_ANSWER_SECONDS = 8
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

_silent: dict[str, str] = {}
"""Places that did not answer, and why: they are not asked a second time."""


class ArchiveError(Exception):
    """Raised when an archive is broken, or holds what it should not; says what."""


class ReleaseError(Exception):
    """Raised when an official release is not available; says why, and what may help."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. Fix: {fix}")
        self.problem, self.fix = problem, fix


@dataclass(frozen=True)
class Release:
    """A release of a project: ``prometheus`` ``3.13.2``.

    Args:
        name: The project, and its main program.
        version: Without the ``v`` of its tag.
        owner: Of the project's repository.
        file: The published file if that is the program itself, with ``{machine}`` in its name
            (``x86_64``, ``aarch64``); by default the program lies in an archive named after the stem.
        sums: The file with the checksums.
    """

    name: str
    version: str
    owner: str = "prometheus"
    file: str | None = None
    sums: str = "sha256sums.txt"

    @property
    def stem(self) -> str:
        """Name of the folder with its programs, for this machine.

        Raises:
            ReleaseError: no release is known for this machine.
        """
        system, machine = platform.system().lower(), platform.machine().lower()
        if system != "linux" or machine not in _ARCHITECTURES:
            fix = f"build {self.name} and put it on PATH"
            raise ReleaseError(f"no official release is known for {system} on {machine}", fix)
        return f"{self.name}-{self.version}.linux-{_ARCHITECTURES[machine]}"

    @property
    def download(self) -> str:
        """Name of the published file for this machine.

        Raises:
            ReleaseError: no release is known for this machine.
        """
        stem = self.stem  # raises where there is none, whatever the file is called
        return self.file.format(machine=platform.machine()) if self.file else f"{stem}.tar.gz"


def kept(release: Release) -> Path | None:
    """The folder of a release that was downloaded before, if it was."""
    try:
        folder = tools_folder() / release.stem
    except ReleaseError:
        return None
    return folder if folder.is_dir() else None


def obtain(release: Release, say: Say) -> Path:
    """Download a release and check it; return the folder with its programs.

    Raises:
        ReleaseError: it is not available, or differs from what was published; nothing of it is left.
    """
    tools = tools_folder()
    try:
        tools.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tools, prefix=f".{release.name}-") as name:
            scratch = Path(name)
            _unpack(_fetch(release, scratch, say), release)
            return keep(scratch / release.stem, tools / release.stem)
    except OSError as problem:
        raise ReleaseError(
            f"{tools}: {problem.strerror or problem}",
            f"make room for some 700 MB in {tools}, or name another folder in XDG_CACHE_HOME",
        ) from None


def unpack(archive: Path, folder: Path, top: str) -> None:
    """Unpack a .tar.gz of plain files, all of them below one folder.

    Args:
        archive: The file.
        folder: Gets the folder ``top``; what was unpacked before a fault stays in it.
        top: The one folder that the archive may hold.

    Raises:
        ArchiveError: it is broken, or holds links, devices, or paths that lead elsewhere.
        OSError: a file cannot be written.
    """
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                path = PurePosixPath(member.name)
                below = path.parts[:1] == (top,) and ".." not in path.parts
                if not below or not (member.isfile() or member.isdir()):
                    raise ArchiveError(f"it holds {member.name!r}, which is not a plain file below {top}/")
                if content := members.extractfile(member):
                    target = folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with content, target.open("wb") as file:
                        shutil.copyfileobj(content, file)
                    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise ArchiveError(f"it cannot be unpacked ({problem})") from None


def _fetch(release: Release, folder: Path, say: Say) -> Path:
    """Download the published file into a folder; return it if its checksum is the published one."""
    from stepwatch.programs import download  # noqa: PLC0415  (an HTTP client: few commands download)

    base = os.environ.get(VARIABLE) or BASE
    parts = urllib.parse.urlsplit(base)
    # What may hold a password or a token is not shown.
    plain = "@" not in base and not (parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.netloc or not plain:
        problem = f"{VARIABLE} is {base!r}" if plain else f"{VARIABLE} holds more than a plain address"
        raise ReleaseError(problem, f"set it to a mirror like {BASE}, without user or query, or unset it")
    base = f"{base.rstrip('/')}/{release.owner}/{release.name}/releases/download/v{release.version}"
    name = release.download
    published = _published(f"{base}/{release.sums}", name)
    url = f"{base}/{name}"
    say(f"  downloading {url}")
    try:
        found = download.fetch(url, folder / name, say)
    except download.DownloadError as error:
        raise ReleaseError(f"{url}: {error}", f"try again, or name a mirror in {VARIABLE}") from None
    if found != published:
        raise ReleaseError(
            f"{url} differs from what was published: its SHA-256 is {found}, expected {published}",
            "try again; if this repeats, the file was changed in transit: do not use it",
        )
    say("  its SHA-256 is the published one")
    return folder / name


def _published(url: str, name: str) -> str:
    """The SHA-256 that the file of checksums has for a file."""
    from stepwatch.programs import download  # noqa: PLC0415  (an HTTP client: few commands download)

    host = urllib.parse.urlsplit(url).netloc
    try:
        if host not in _silent:
            sums = download.text(url, patience=_ANSWER_SECONDS)
    except download.NoAnswerError as problem:
        _silent[host] = str(problem)
    except download.DownloadError as problem:
        raise ReleaseError(f"{url}: {problem}", f"name a mirror that has it in {VARIABLE}") from None
    if host in _silent:
        raise ReleaseError(f"{host} cannot be reached ({_silent[host]})", f"name a mirror in {VARIABLE}")
    if found := re.search(rf"^([0-9a-f]{{64}}) [ *]{re.escape(name)}$", sums, re.MULTILINE):
        return found[1]
    raise ReleaseError(f"{url} names no {name}", f"name a mirror that has it in {VARIABLE}")


def _unpack(file: Path, release: Release) -> None:
    """Make the folder with the programs beside the file."""
    if release.file:
        folder = file.parent / release.stem
        folder.mkdir()
        file.rename(folder / release.name).chmod(0o755)
        return
    try:
        unpack(file, file.parent, release.stem)
    except ArchiveError as problem:
        fix = f"do not use it; name another mirror in {VARIABLE}"
        raise ReleaseError(f"{file.name}: {problem}", fix) from None
    if not (file.parent / release.stem / release.name).is_file():
        fix = f"name another mirror in {VARIABLE}"
        raise ReleaseError(f"{file.name}: it holds no {release.stem}/{release.name}", fix)

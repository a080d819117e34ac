"""Official releases: downloaded, checked against their published checksums, kept in the user's cache."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import platform
import queue
import re
import shutil
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stepwatch.system.terminal import Say

VARIABLE = "STEPWATCH_RELEASES"
"""Names a mirror in place of ``BASE``."""
BASE = "https://github.com"

_ANSWER_SECONDS = 8
_STALL_SECONDS = 30
_NEWS_SECONDS = 5
_BLOCK = 1 << 20
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
    """A release of a project, without the ``v`` of its tag; ``file``: the program itself, no archive."""

    name: str
    version: str
    owner: str = "prometheus"
    file: str | None = None
    sums: str = "sha256sums.txt"

    @property
    def stem(self) -> str:
        """Name of the folder with its programs, for this machine. Raises ReleaseError."""
        system, machine = platform.system().lower(), platform.machine().lower()
        if system != "linux" or machine not in _ARCHITECTURES:
            fix = f"build {self.name} and put it on PATH"
            raise ReleaseError(f"no official release is known for {system} on {machine}", fix)
        return f"{self.name}-{self.version}.linux-{_ARCHITECTURES[machine]}"

    @property
    def download(self) -> str:
        """Name of the published file for this machine. Raises ReleaseError."""
        stem = self.stem  # raises where there is none, whatever the file is called
        return self.file.format(machine=platform.machine()) if self.file else f"{stem}.tar.gz"


def tools_folder() -> Path:
    """Where unpacked and built programs are kept, one folder ``<tool>-<version>`` each."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "stepwatch" / "tools"


def keep(made: Path, place: Path) -> Path:
    """Move a folder to its place among the tools, unless another process was faster."""
    try:
        return made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        return place


def kept(release: Release) -> Path | None:
    """The folder of a release that was downloaded before, if it was."""
    try:
        folder = tools_folder() / release.stem
    except ReleaseError:
        return None
    return folder if folder.is_dir() else None


def obtain(release: Release, say: Say) -> Path:
    """Download a release and check it; return the folder with its programs. Raises ReleaseError."""
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


def unpack_archive(archive: Path, folder: Path, top: str) -> None:
    """Unpack a .tar.gz of plain files below the one folder ``top``. Raises ArchiveError or OSError."""
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
        found = _download(url, folder / name, say)
    except _DownloadError as error:
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
    host = urllib.parse.urlsplit(url).netloc
    try:
        if host not in _silent:
            sums = _page(url)
    except _NoAnswerError as problem:
        _silent[host] = str(problem)
    except _DownloadError as problem:
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
        unpack_archive(file, file.parent, release.stem)
    except ArchiveError as problem:
        fix = f"do not use it; name another mirror in {VARIABLE}"
        raise ReleaseError(f"{file.name}: {problem}", fix) from None
    if not (file.parent / release.stem / release.name).is_file():
        fix = f"name another mirror in {VARIABLE}"
        raise ReleaseError(f"{file.name}: it holds no {release.stem}/{release.name}", fix)


class _DownloadError(Exception):
    """Raised when a download fails; says what went wrong."""


class _NoAnswerError(_DownloadError):
    """Raised when no one answers there."""


def _page(url: str) -> str:
    """The text of a small page (at most 1 MB), which has `_ANSWER_SECONDS`, its name service included."""
    answers: queue.Queue[str | _DownloadError] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(_text(url, _ANSWER_SECONDS))
        except _DownloadError as problem:
            answers.put(problem)

    # A name service has no timeout, so it is left to a thread.
    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        raise _NoAnswerError(f"no answer within {_ANSWER_SECONDS:g} s") from None
    if isinstance(answer, _DownloadError):
        raise answer
    return answer


def _download(url: str, target: Path, say: Say) -> str:
    """Download a file; return its SHA-256. ``say`` gets a line every few seconds."""
    digest, done, reported = hashlib.sha256(), 0, time.monotonic()
    with _faults():
        answer = urllib.request.urlopen(url, timeout=_STALL_SECONDS)  # noqa: S310 - the caller names it
    with answer, target.open("wb") as file:
        total = int(answer.headers["Content-Length"] or 0)
        while True:
            with _faults():
                block = answer.read(_BLOCK)
            if not block:
                break
            digest.update(block)
            file.write(block)
            done += len(block)
            if time.monotonic() - reported > _NEWS_SECONDS:
                reported = time.monotonic()
                of = f" of {total / 1e6:.0f}" if total else ""
                say(f"  {done / 1e6:.0f}{of} MB")
    if done < total:
        raise _DownloadError(f"the connection was closed early after {done} of {total} bytes")
    return digest.hexdigest()


def _text(url: str, timeout: float) -> str:
    with _faults(_NoAnswerError), urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - the caller names it
        content: bytes = answer.read(_BLOCK)
    return content.decode("utf-8", "replace")


@contextmanager
def _faults(kind: type[_DownloadError] = _DownloadError) -> Iterator[None]:
    """Raise what went wrong with a request as an error of ours."""
    try:
        yield
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise _DownloadError(f"{refusal.code} {refusal.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise kind(str(getattr(reason, "strerror", None) or reason or type(problem).__name__)) from None

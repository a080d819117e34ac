"""Archives of others, unpacked with distrust."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

_BROKEN = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error)


class ArchiveError(Exception):
    """Raised when an archive is broken, or holds what it should not; says what."""


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
                _place(members, member, folder, top)
    except _BROKEN as problem:
        raise ArchiveError(f"it cannot be unpacked ({problem})") from None


def _place(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, top: str) -> None:
    path = PurePosixPath(member.name)
    if path.parts[:1] != (top,) or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise ArchiveError(f"it holds {member.name!r}, which is no plain file below {top}/")
    if content := members.extractfile(member):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)
        target.chmod(0o755 if member.mode & 0o100 else 0o644)

"""The generated files on disk: what of them is stale, and their replacement, whole or not at all.

New files are written into a folder beside the old ones and moved over them one by one, because the
folders themselves are mounted into containers and must stay what they are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stepwatch.config import Refused

Files = Mapping[PurePosixPath, bytes]

GENERATED = "generated"
# Servers in containers run as users of their own, whatever umask the files were made under.
FILE_MODE = 0o644
FOLDER_MODE = 0o755

_STAGING_PREFIX = ".generated-"
_NO_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


class OutputError(Refused):
    """Raised when generated files cannot be written; what was there before is there still."""


@dataclass(frozen=True)
class Changes:
    """How the files on disk differ from the rendered ones, by path below the target folder."""

    missing: tuple[PurePosixPath, ...]
    different: tuple[PurePosixPath, ...]
    orphans: tuple[PurePosixPath, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.different or self.orphans)

    def __iter__(self) -> Iterator[tuple[str, PurePosixPath]]:
        """Yield (kind, path) in the order of the paths."""
        kinds = {"missing": self.missing, "different": self.different, "orphan": self.orphans}
        return iter(
            sorted(((kind, path) for kind in kinds for path in kinds[kind]), key=lambda pair: pair[1])
        )


def compare(out: Path, files: Files) -> Changes:
    """Return what would have to change below a folder for it to hold exactly these files.

    Raises:
        OutputError: Something that is no folder, or no plain one, stands where a folder belongs.
    """
    with _in_words(out):
        for folder in _folders(files):
            _require_folder(out, folder)
        existing = {path for service in _services(files) for path in _existing(out, service)}
        different = {path for path in existing & files.keys() if not _holds(out / path, files[path])}
    return Changes(
        tuple(sorted(files.keys() - existing)),
        tuple(sorted(different)),
        tuple(sorted(existing - files.keys())),
    )


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder if need be, and keep other writers of it waiting.

    Raises:
        OutputError: The folder cannot be made or locked.
    """
    with _in_words(out):
        _make_folder(out)
        descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _in_words(out):
            _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # Network folders may know no locks; single files are still replaced as a whole there.
        if error.errno not in _NO_LOCKS:
            raise


@dataclass(frozen=True)
class Staging:
    """Folders beside the generated ones, one per service: new files, and copies of old ones."""

    folders: Mapping[str, Path]

    def rendered(self) -> dict[str, Path]:
        """Return the folder of the new files for each service."""
        return {service: folder / "new" for service, folder in self.folders.items()}

    def new(self, path: PurePosixPath) -> Path:
        """Return where a new file waits."""
        return self.folders[path.parts[0]].joinpath("new", *path.parts[2:])

    def old(self, path: PurePosixPath) -> Path:
        """Return where the copy of an old file is kept."""
        return self.folders[path.parts[0]].joinpath("old", *path.parts[2:])


@contextmanager
def staged(out: Path, files: Files) -> Iterator[Staging]:
    """Write the files beside their places; they are gone at the end, unless moved there.

    Raises:
        OutputError: They cannot be written.
    """
    folders: dict[str, Path] = {}
    staging = Staging(folders)
    try:
        with _in_words(out):
            for service in _services(files):
                folders[service] = _staging_folder(out / service)
            for path, content in files.items():
                _write(staging.new(path), content)
        yield staging
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _staging_folder(service: Path) -> Path:
    _make_folder(service)
    for left_by_a_killed_one in service.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_by_a_killed_one, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=service))


def replace(out: Path, staging: Staging, changes: Changes) -> None:
    """Move staged files to their places and delete orphans; on failure, put back what was there.

    Raises:
        OutputError: A file cannot be replaced or deleted; nothing has changed.
    """
    with _in_words(out):
        for path in (*changes.different, *changes.orphans):
            _back_up(out / path, staging.old(path))
        try:
            _move(out, staging, changes)
        except BaseException:
            _put_back(out, staging, changes)
            raise
        _mend_modes(out, staging.folders)


def _move(out: Path, staging: Staging, changes: Changes) -> None:
    for path in (*changes.missing, *changes.different):
        _make_folder((out / path).parent)
        os.replace(staging.new(path), out / path)  # noqa: PTH105  one name for the tests to break
    for path in changes.orphans:
        (out / path).unlink()
        _remove_empty(out, path.parent)


def _put_back(out: Path, staging: Staging, changes: Changes) -> None:
    for path in (*changes.different, *changes.orphans):
        _make_folder((out / path).parent)
        staging.old(path).replace(out / path)
    for path in changes.missing:
        (out / path).unlink(missing_ok=True)
        _remove_empty(out, path.parent)


def _back_up(path: Path, backup: Path) -> None:
    backup.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, backup, follow_symlinks=False)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a single file in one step.

    Raises:
        OutputError: It cannot be written; it is as it was.
    """
    with _in_words(path):
        fresh = path.with_name(f"{path.name}.new")
        _write(fresh, content)
        fresh.replace(path)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(FILE_MODE)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(FOLDER_MODE)


def _mend_modes(out: Path, services: Iterable[str]) -> None:
    for service in services:
        for folder, _, names in os.walk(out / service / GENERATED):
            _mend_mode(Path(folder), FOLDER_MODE)
            for name in names:
                if not name.startswith("."):
                    _mend_mode(Path(folder, name), FILE_MODE)


def _mend_mode(path: Path, mode: int) -> None:
    status = path.lstat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 != mode and not path.is_symlink():
        path.chmod(mode)


def _remove_empty(out: Path, folder: PurePosixPath) -> None:
    while folder.name != GENERATED and not any((out / folder).iterdir()):
        (out / folder).rmdir()
        folder = folder.parent


def _services(files: Files) -> list[str]:
    return sorted({path.parts[0] for path in files})


def _folders(files: Files) -> list[PurePosixPath]:
    return sorted({folder for path in files for folder in path.parents if folder != PurePosixPath()})


def _require_folder(out: Path, folder: PurePosixPath) -> None:
    path = out / folder
    # A link from here on down would lead the files, and the deleting, elsewhere.
    if GENERATED in folder.parts and path.is_symlink():
        what = "a link"
    elif path.exists() and not path.is_dir():
        what = "no folder"
    else:
        return
    raise OutputError(f"{path}: is {what}. Expected: a folder. Cure: move it away; nothing was written.")


def _existing(out: Path, service: str) -> Iterator[PurePosixPath]:
    """Yield what lies in a service's generated folder; dot files are other programs' own."""
    for folder, folders, names in os.walk(out / service / GENERATED):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            if not name.startswith("."):
                yield PurePosixPath(Path(folder, name).relative_to(out).as_posix())


def _holds(path: Path, content: bytes) -> bool:
    return not path.is_symlink() and path.read_bytes() == content


@contextmanager
def _in_words(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or out
        raise OutputError(
            f"{place}: {error.strerror or error}. Expected: a place to write generated files. "
            "Cure: check space, permissions and path; the files there are as they were."
        ) from error

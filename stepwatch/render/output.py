"""The generated files on disk: what of them is stale, and their replacement, file by file.

New files are written into a folder beside the services and moved over the old ones one by one, because
the folders themselves are mounted into containers and must stay what they are. If that is interrupted, the
next writer compares again and replaces the rest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stepwatch.schema.errors import Refused
from stepwatch.system.files import lock

Files = Mapping[PurePosixPath, bytes]

GENERATED = "generated"
# Servers in containers run as users of their own, whatever umask the files were made under.
FILE_MODE = 0o644
FOLDER_MODE = 0o755
_STAGING_PREFIX = ".generated-"
_UNTOUCHED = "the files there are as they were"
_INTERRUPTED = "then run the command again, which replaces the remaining files"


class OutputError(Refused):
    """Raised when generated files cannot be written."""


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
    """Return what must change below a folder for it to hold exactly these files. Raises ``OutputError``."""
    with _output_errors(out):
        for folder in sorted({folder for path in files for folder in path.parents} - {PurePosixPath()}):
            _require_folder(out, folder)
        for path in files:
            _require_file(out / path)
        services = sorted({path.parts[0] for path in files})
        existing = {path for service in services for path in _existing(out, service)}
        different = {
            path
            for path in existing & files.keys()
            if (out / path).is_symlink() or (out / path).read_bytes() != files[path]
        }
    return Changes(
        tuple(sorted(files.keys() - existing)),
        tuple(sorted(different)),
        tuple(sorted(existing - files.keys())),
    )


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder, and keep other writers out. Raises ``OutputError``."""
    with _output_errors(out):
        _make_folder(out)
        descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _output_errors(out):
            lock(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def staged(out: Path, files: Files) -> Iterator[Path]:
    """Yield a folder with the files, beside their places; it is gone at the end. Raises ``OutputError``."""
    for left_by_a_killed_one in out.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_by_a_killed_one, ignore_errors=True)
    with _output_errors(out):
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=out))
    try:
        with _output_errors(out):
            for path, content in files.items():
                _write(staging / path, content)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def replace(out: Path, staging: Path, changes: Changes) -> None:
    """Move staged files to their places, delete orphans, and correct modes. Raises ``OutputError``.

    The deepest files go first, a service's main file, which names the others, after them; then the orphans.
    """
    moves = sorted(
        (*changes.missing, *changes.different),
        key=lambda path: (path.stem == path.parts[0], -len(path.parts)),
    )
    with _output_errors(out):
        for path in moves:
            _make_folder((out / path).parent)
    with _output_errors(out, _INTERRUPTED):
        for path in moves:
            (staging / path).replace(out / path)
        for path in changes.orphans:
            (out / path).unlink()
            _remove_empty(out / path.parent)
        for service in staging.iterdir():
            for folder, _, names in os.walk(out / service.name / GENERATED):
                _correct_mode(Path(folder), FOLDER_MODE)
                for name in names:
                    if not name.startswith("."):
                        _correct_mode(Path(folder, name), FILE_MODE)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a single file in one step. Raises ``OutputError``: it is as it was."""
    with _output_errors(path):
        fresh = path.with_name(f"{path.name}.new")
        _write(fresh, content)
        _sync(fresh)
        fresh.replace(path)
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(FILE_MODE)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(FOLDER_MODE)


def _remove_empty(folder: Path) -> None:
    while folder.name != GENERATED and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _correct_mode(path: Path, mode: int) -> None:
    status = path.lstat()
    own = status.st_uid == os.geteuid() and not path.is_symlink()
    if own and status.st_mode & 0o777 != mode:
        path.chmod(mode)


def _require_folder(out: Path, folder: PurePosixPath) -> None:
    path = out / folder
    # A link from here on down would lead the files, and the deleting, elsewhere.
    if GENERATED in folder.parts and path.is_symlink():
        what = "a link"
    elif path.exists() and not path.is_dir():
        what = "no folder"
    else:
        return
    raise OutputError(f"{path}: is {what}. Expected: a folder. Fix: move it away; nothing was written.")


def _require_file(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        raise OutputError(f"{path}: is a folder. Expected: a file. Fix: move it away; nothing was written.")


def _existing(out: Path, service: str) -> Iterator[PurePosixPath]:
    """Yield what lies in a service's generated folder; dot files are other programs' own."""
    for folder, folders, names in os.walk(out / service / GENERATED):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            if not name.startswith("."):
                yield PurePosixPath(Path(folder, name).relative_to(out).as_posix())


@contextmanager
def _output_errors(out: Path, after: str = _UNTOUCHED) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or out
        raise OutputError(
            f"{place}: {error.strerror or error}. Expected: a folder for generated files. Fix: check space, "
            f"permissions and path; {after}."
        ) from error

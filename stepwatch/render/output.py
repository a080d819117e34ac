"""The generated files on disk: what of them is stale, and their replacement, whole or not at all.

New files are written into a folder beside the services and moved over the old ones one by one, because
the folders themselves are mounted into containers and must stay what they are. That folder is the journal
as well: its name says whether to finish the move, or to put the old files back.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from stepwatch.schema.errors import Refused
from stepwatch.system.files import lock

Files = Mapping[PurePosixPath, bytes]

GENERATED = "generated"
# Servers in containers run as users of their own, whatever umask the files were made under.
FILE_MODE = 0o644
FOLDER_MODE = 0o755
_STAGING_PREFIX = ".generated-"
# The staging folder once it is decided which files stay. Neither begins with the prefix: see `staged`.
_FINISH = ".generated.finish"
_ROLL_BACK = ".generated.roll-back"


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

    def to_json(self) -> str:
        """Return the changes as text."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Changes:
        """Return the changes that ``to_json`` wrote. Raises ``ValueError``."""
        lists = json.loads(text)
        try:
            return cls(**{kind: tuple(map(PurePosixPath, paths)) for kind, paths in lists.items()})
        except (AttributeError, TypeError) as error:
            raise ValueError(text) from error


def compare(out: Path, files: Files) -> Changes:
    """Return what must change below a folder for it to hold exactly these files. Raises ``OutputError``."""
    with _output_errors(out):
        for folder in sorted({folder for path in files for folder in path.parents} - {PurePosixPath()}):
            _require_folder(out, folder)
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
    """Make the folder, keep other writers out, finish what a killed one left. Raises ``OutputError``."""
    with _output_errors(out):
        _make_folder(out)
        descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _output_errors(out):
            lock(descriptor)
            for folder, complete in ((out / _FINISH, _finish), (out / _ROLL_BACK, _roll_back)):
                if folder.is_dir():
                    complete(out, Staging(folder))
                    _remove(Staging(folder))
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Staging:
    """A folder beside the services: new files, copies of the old ones, and how the two differ."""

    folder: Path

    def rendered(self) -> dict[str, Path]:
        """Return the folder of the new files for each service."""
        return {path.name: path / GENERATED for path in sorted((self.folder / "new").iterdir())}

    def new(self, path: PurePosixPath) -> Path:
        """Return the path of a new file before it is moved."""
        return self.folder / "new" / path

    def old(self, path: PurePosixPath) -> Path:
        """Return the path of the copy of an old file."""
        return self.folder / "old" / path

    @property
    def record(self) -> Path:
        """The file that lists which files change."""
        return self.folder / "changes.json"

    def recorded(self) -> Changes | None:
        """Return which files change; None: only this folder is left to delete. Raises OutputError."""
        try:
            return Changes.from_json(self.record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise OutputError(
                f"{self.record}: the file is damaged. Expected: what an interrupted command wrote. "
                f"Fix: delete the folder {self.folder}, then run the command again."
            ) from None


@contextmanager
def staged(out: Path, files: Files) -> Iterator[Staging]:
    """Write the files beside their places; what is not moved there is gone at the end. Raises OutputError."""
    for left_by_a_killed_one in out.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(left_by_a_killed_one, ignore_errors=True)
    with _output_errors(out):
        staging = Staging(Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=out)))
    try:
        with _output_errors(out):
            (staging.folder / "new").mkdir()
            for path, content in files.items():
                _write(staging.new(path), content)
        yield staging
    finally:
        shutil.rmtree(staging.folder, ignore_errors=True)


def replace(out: Path, staging: Staging, changes: Changes) -> None:
    """Move staged files to their places and delete orphans; with ``OutputError``, put back what was there.

    Once the changes are on disk, one rename of the staging folder decides for the new files, and another one
    for the old files if something fails. Anyone who locks the folder next goes on where a killed process or a
    power cut stopped this one.
    """
    services = staging.rendered()
    with _output_errors(out):
        if changes:
            _prepare(out, staging, changes)
            staging = Staging(staging.folder.replace(out / _FINISH))
            try:
                _finish(out, staging)
            except BaseException:
                staging = Staging(staging.folder.replace(out / _ROLL_BACK))
                _roll_back(out, staging)
                _remove(staging)
                raise
            _remove(staging)
        for service in services:
            for folder, _, names in os.walk(out / service / GENERATED):
                files = ((Path(folder, name), FILE_MODE) for name in names if not name.startswith("."))
                for path, mode in ((Path(folder), FOLDER_MODE), *files):
                    status = path.lstat()
                    own = status.st_uid == os.geteuid() and not path.is_symlink()
                    if own and status.st_mode & 0o777 != mode:
                        path.chmod(mode)


def recover(out: Path) -> None:
    """Finish, or roll back, what a killed process or a power cut left half done. Raises ``OutputError``."""
    if _half_done(out):
        with locked(out):
            pass


def _half_done(out: Path) -> bool:
    return any((out / name).is_dir() for name in (_FINISH, _ROLL_BACK))


def _prepare(out: Path, staging: Staging, changes: Changes) -> None:
    """Put on disk all that it takes to end with the new files, or the old ones, come what may."""
    replaced = (*changes.different, *changes.orphans)
    for path in replaced:
        staging.old(path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(out / path, staging.old(path), follow_symlinks=False)
    staging.record.write_text(changes.to_json(), encoding="utf-8")
    copies = [copy for copy in map(staging.old, replaced) if not copy.is_symlink()]
    moved = map(staging.new, (*changes.different, *changes.missing))
    folders = [Path(folder) for folder, _, _ in os.walk(staging.folder)]
    for place in (*copies, *moved, staging.record, *folders):
        _sync(place)


def _finish(out: Path, staging: Staging) -> None:
    """Move what is still to be moved to its place, and delete the orphans."""
    if changes := staging.recorded():
        _sync(out)
        # The deepest files first, a service's main file, which names the others, last; then the orphans.
        moves = (*changes.missing, *changes.different)
        for path in sorted(moves, key=lambda path: (path.stem == path.parts[0], -len(path.parts))):
            _make_folder((out / path).parent)
            with suppress(FileNotFoundError):  # it was moved before the process was killed
                os.replace(staging.new(path), out / path)  # noqa: PTH105  one name for the tests to break
        for path in changes.orphans:
            (out / path).unlink(missing_ok=True)
        _settle(out, changes)


def _roll_back(out: Path, staging: Staging) -> None:
    """Move the old files back to their places, and delete the new ones."""
    if changes := staging.recorded():
        _sync(out)
        for path in (*changes.different, *changes.orphans):
            _make_folder((out / path).parent)
            with suppress(FileNotFoundError):  # it is back already
                staging.old(path).replace(out / path)
        for path in changes.missing:
            if not staging.new(path).exists():  # only what was moved there is ours to delete
                (out / path).unlink(missing_ok=True)
        _settle(out, changes)


def _settle(out: Path, changes: Changes) -> None:
    """Remove folders that were left empty, and have the disk hold what was done."""
    for _, path in changes:
        folder = path.parent
        while folder.name != GENERATED and not ((out / folder).exists() and any((out / folder).iterdir())):
            with suppress(FileNotFoundError):  # it was removed already
                (out / folder).rmdir()
            folder = folder.parent
    for folder in {folder for _, path in changes for folder in path.parents}:
        if (out / folder).is_dir():
            _sync(out / folder)


def _remove(staging: Staging) -> None:
    """Delete the record first: a folder without one is only rubbish."""
    staging.record.unlink(missing_ok=True)
    _sync(staging.folder)
    shutil.rmtree(staging.folder, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a single file in one step. Raises ``OutputError``: it is as it was."""
    with _output_errors(path):
        fresh = path.with_name(f"{path.name}.new")
        _write(fresh, content)
        _sync(fresh)
        fresh.replace(path)
        _sync(path.parent)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(FILE_MODE)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(FOLDER_MODE)


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


def _existing(out: Path, service: str) -> Iterator[PurePosixPath]:
    """Yield what lies in a service's generated folder; dot files are other programs' own."""
    for folder, folders, names in os.walk(out / service / GENERATED):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            if not name.startswith("."):
                yield PurePosixPath(Path(folder, name).relative_to(out).as_posix())


@contextmanager
def _output_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or out
        after = "the next start goes on with them" if _half_done(out) else "the files there are as they were"
        raise OutputError(
            f"{place}: {error.strerror or error}. Expected: a folder for generated files. Fix: check space, "
            f"permissions and path; {after}."
        ) from error

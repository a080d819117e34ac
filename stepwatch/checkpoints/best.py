"""The folder of the best checkpoints: beside the trainer's own, where neither rotation nor resume looks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stepwatch.checkpoints import layouts
from stepwatch.checkpoints.layouts import NOT_REGULAR, Checkpoint, Files

MARKER = ".stepwatch.json"
"""Says that Stepwatch made the folder, and each file of what it keeps there."""
DESCRIPTION = "best.json"
_WRITTEN = f"{MARKER}.new"
MOST_MARGIN = 10 << 30
MARGIN_RATIO = 0.05
"""Of the disk that stay free, at most ``MOST_MARGIN`` bytes, beside room for the next checkpoint."""

_FICLONE = 0x40049409
_BLOCK = 16 << 20
VALIDATION = "validation"
REFLINK, HARD_LINK, COPY = "reflink", "hard link", "copy"
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS)
"""What a file system says that does not know this kind of link, or not for this file."""


class NotKept(Exception):  # noqa: N818  (no error of the program)
    """Raised where a checkpoint cannot be kept; its text says why, and what to do."""


class Busy(Exception):  # noqa: N818
    """Raised while another process keeps checkpoints in the same folder."""


@dataclass(frozen=True)
class Kept:
    """A checkpoint that is kept, as ``source`` its trainer's files; ``at`` is in Unix seconds."""

    name: str
    step: int
    score: float
    measure: str
    why: str
    at: float
    by: str
    files: Files
    source: Files


class BestFolder:
    """The folder for one folder of a trainer; used with ``open``."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.place = place(source)
        self._kept: dict[str, Kept] = {}
        self._id = ""

    @property
    def kept(self) -> list[Kept]:
        """What is kept."""
        return list(self._kept.values())

    @contextmanager
    def open(self) -> Iterator[list[str]]:
        """Lock the folder, made if need be, and clear up after a killed process. Raises NotKept or Busy."""
        foreign = NotKept(
            f"{self.place} was not made by Stepwatch, so no checkpoint is kept there. Fix: move it away."
        )
        try:
            self.place.mkdir(exist_ok=True)
            # A link would redirect deletions elsewhere.
            file = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileExistsError, NotADirectoryError):
            raise foreign from None
        except OSError as error:
            raise NotKept(
                f"{self.place} cannot be written: {error.strerror}, so no checkpoint is kept. "
                "Fix: give the trainer's user the right to write there."
            ) from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy from None
            if any(each.name != _WRITTEN for each in self.place.iterdir()) and not self._load():
                raise foreign
            self._id = self._id or uuid.uuid4().hex
            self._new, self._old = self.place / f".new-{self._id}", self.place / f".old-{self._id}"
            yield list(self._cleared())
        finally:
            os.close(file)

    def keep(self, checkpoint: Checkpoint, score: float, measure: str, why: str) -> Kept:
        """Keep a checkpoint; one of the same name is replaced. Raises NotKept."""
        name = checkpoint.name
        before = self._kept.get(name)
        known = before.files.keys() if before else set()
        if os.path.lexists(self.place / name) and layouts.files(self.place / name).keys() - known:
            raise NotKept(
                f"{self.place / name} was not made by Stepwatch, so {name} is not kept. Fix: move it away."
            )
        if any(size == NOT_REGULAR for _, size, _ in checkpoint.files.values()):
            raise NotKept(
                f"{checkpoint.path} contains a link, so it is not kept: the target of the link may change."
            )
        self._has_room(checkpoint.bytes)
        new = self._new
        try:
            by = self._make(checkpoint, new)
            made = _verified(checkpoint, new)
        except (OSError, NotKept) as problem:
            shutil.rmtree(new, ignore_errors=True)
            if isinstance(problem, NotKept):
                raise
            raise NotKept(f"{name} cannot be kept in {self.place}: {problem.strerror}.") from None
        kept = Kept(name, checkpoint.step, score, measure, why, time.time(), by, made, checkpoint.files)
        self._kept[name] = kept
        self._save()
        self._delete_all(self.place / name)
        new.rename(self.place / name)
        self._describe()
        return kept

    def drop(self, kept: Kept) -> None:
        """Delete a checkpoint that is no longer among the best, but nothing beside what was made for it."""
        path = self.place / kept.name
        del self._kept[kept.name]
        self._describe()
        foreign = path.is_symlink() or layouts.files(path).keys() - kept.files.keys()
        if not foreign and path.exists():
            path.rename(self._old)
        self._save()
        shutil.rmtree(self._old, ignore_errors=True)
        if foreign:
            raise NotKept(
                f"{path} is no longer kept, but not deleted: it contains files that Stepwatch did not make."
            )

    def _load(self) -> bool:
        """Read what is kept; whether Stepwatch made the folder."""
        try:
            found = json.loads((self.place / MARKER).read_bytes())
            self._id = str(found["id"])
            for name, fields in found["kept"].items():
                kept = Kept(name=name, **fields)
                self._kept[name] = replace(kept, files=_tuples(kept.files), source=_tuples(kept.source))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return False
        return True

    def _cleared(self) -> Iterator[str]:
        was_dropped = self._old.exists()
        shutil.rmtree(self._old, ignore_errors=True)
        for kept in self.kept:
            there = layouts.files(self.place / kept.name)
            if _same(there, kept.files):
                continue
            if _same(layouts.files(self._new), kept.files):  # killed right before it got its name
                self._delete_all(self.place / kept.name)
                self._new.rename(self.place / kept.name)
            else:
                text = self._changed(kept, there)
                if there or not was_dropped:
                    yield text
        shutil.rmtree(self._new, ignore_errors=True)
        self._save()
        self._describe()

    def _changed(self, kept: Kept, there: Files) -> str:
        """Forget a kept checkpoint that changed, and delete it if the trainer has it too."""
        del self._kept[kept.name]
        path = self.place / kept.name
        if not there:
            with suppress(OSError):
                path.rmdir()
            return f"{path} is gone; it is no longer among the best."
        own = {inode for inode, _, _ in layouts.files(self.source / kept.name).values()}
        changed = {file: facts for file, facts in there.items() if kept.files.get(file) != facts}
        if changed and all(inode in own for inode, _, _ in changed.values()):
            self._delete_all(path)
            return f"the trainer saved {kept.name} again, which wrote into {path}; that is no longer kept."
        return f"{path} was changed; it is left as it is and no longer counts as kept."

    def _delete_all(self, path: Path) -> None:
        """Delete a folder, by way of a name that nothing takes for a checkpoint."""
        with suppress(FileNotFoundError):
            path.rename(self._old)
        shutil.rmtree(self._old, ignore_errors=True)

    def _has_room(self, needed: int) -> None:
        """What is kept is not freed by the rotation, which the trainer may count on for its next one."""
        disk = os.statvfs(self.place)
        margin = min(MOST_MARGIN, int(MARGIN_RATIO * disk.f_blocks * disk.f_frsize))
        free = disk.f_bavail * disk.f_frsize
        if free < needed + margin:
            raise NotKept(
                f"{self.place} has {free / 2**30:.3g} GiB free; keeping a checkpoint takes "
                f"{(needed + margin) / 2**30:.3g} GiB. Fix: free some space."
            )

    def _make(self, checkpoint: Checkpoint, into: Path) -> str:
        """Make a second one of a checkpoint's files, by the cheapest means that the file system has."""
        into.mkdir()
        means = [REFLINK, HARD_LINK, COPY]
        used = REFLINK
        for path, (_, size, _) in checkpoint.files.items():
            source, target = checkpoint.path / path, into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            while not _made(means[0], source, target):
                del means[0]
            if means[0] == COPY:
                self._has_room(checkpoint.bytes + size)
                with source.open("rb") as read, target.open("xb") as written:
                    shutil.copyfileobj(read, written, _BLOCK)
                    written.flush()
                    os.fsync(written.fileno())
                shutil.copystat(source, target)
            used = means[0]
        return used

    def _save(self) -> None:
        kept = {each.name: {k: v for k, v in asdict(each).items() if k != "name"} for each in self.kept}
        self._write(MARKER, {"made_by": "stepwatch run", "id": self._id, "kept": kept})

    def _describe(self) -> None:
        shown = [
            {
                "checkpoint": each.name,
                "step": each.step,
                "score": each.score,
                "measure": each.measure,
                "why": each.why,
                "kept_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.at)),
                "source": str(self.source / each.name),
                "by": each.by,
            }
            for each in sorted(self.kept, key=rank, reverse=True)
        ]
        self._write(DESCRIPTION, {"best": shown})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        written = self.place / _WRITTEN
        written.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")
        written.replace(self.place / name)


def place(source: Path) -> Path:
    """Return the folder of the best: beside the trainer's, or in it where that is a disk's root."""
    on_one_disk = source.parent.stat().st_dev == source.stat().st_dev
    return source.with_name(f"{source.name}.best") if on_one_disk else source / "best"


def rank(kept: Kept) -> tuple[bool, float]:
    """What is worth more, is more: a score on held-out prompts counts before any reward of training."""
    return kept.measure == VALIDATION, kept.score


def _same(one: Files, other: Files) -> bool:
    """Inodes are no part of it: not every file system keeps them."""
    first, second = ({path: about[1:] for path, about in each.items()} for each in (one, other))
    return first == second


def _verified(checkpoint: Checkpoint, made: Path) -> Files:
    """Return the files that were made, if the trainer left the checkpoint alone meanwhile."""
    files = layouts.files(made)
    untouched = layouts.files(checkpoint.path) == checkpoint.files and layouts.is_whole(checkpoint)
    if untouched and _same(files, checkpoint.files):
        return files
    raise NotKept(f"{checkpoint.name} is not kept: the trainer changed or deleted it meanwhile.")


def _tuples(files: Files) -> Files:
    return {path: (inode, size, changed) for path, (inode, size, changed) in files.items()}


def _made(by: str, source: Path, target: Path) -> bool:
    """Make a file by a reflink or a hard link; whether that can be. A copy always can."""
    try:
        if by == HARD_LINK:
            os.link(source, target, follow_symlinks=False)
        elif by == REFLINK:
            with source.open("rb") as read, target.open("xb") as written:
                fcntl.ioctl(written, _FICLONE, read.fileno())
            shutil.copystat(source, target)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        target.unlink(missing_ok=True)
        return False
    return True

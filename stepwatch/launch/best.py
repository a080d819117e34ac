"""The folder of the best checkpoints: beside the trainer's own, where neither rotation nor resume looks.

Each kept checkpoint holds a file that lists what was made. What lacks it or differs from it is never deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stepwatch.launch import layouts
from stepwatch.launch.layouts import Checkpoint

ABOUT = "best.json"
VALIDATION = "validation"
MOST_MARGIN, MARGIN_RATIO = 10 << 30, 0.05
"""Of the disk that stay free, in bytes and as a share of it, beside room for the next checkpoint."""


class NotKept(Exception):  # noqa: N818  (no error of the program)
    """Raised where a checkpoint cannot be kept; its text says why, and what to do."""


@dataclass(frozen=True)
class Kept:
    """A checkpoint that is to be kept, or is: ``files`` have their size and the time of the last change."""

    checkpoint: str
    step: int
    score: float
    measure: str
    why: str
    kept_at: str
    source: str
    files: dict[str, list[int]]

    @property
    def rank(self) -> tuple[bool, float]:
        """A score on held-out prompts counts before any reward of training."""
        return self.measure == VALIDATION, self.score


class BestFolder:
    """The folder for one folder of a trainer, with what is ``kept`` there. Raises NotKept if it is a link."""

    def __init__(self, source: Path) -> None:
        on_one_disk = source.parent.stat().st_dev == source.stat().st_dev
        self.source = source
        self.place = source.with_name(f"{source.name}.best") if on_one_disk else source / "best"
        if self.place.is_symlink() or (self.place.exists() and not self.place.is_dir()):
            raise NotKept(f"{self.place} was not made by Stepwatch, so nothing is kept. Fix: move it away.")
        self._new, self._old = self.place / ".stepwatch-new", self.place / ".stepwatch-old"
        self.kept: dict[str, Kept] = {}
        self.says: list[str] = []
        for path in sorted(self.place.iterdir() if self.place.exists() else ()):
            kept = _about(path)
            if kept and kept.checkpoint == path.name:
                if facts(layouts.files(path)) == kept.files:
                    self.kept[path.name] = kept
                else:
                    self.says.append(self._changed(path))

    def _changed(self, path: Path) -> str:
        """Forget a kept checkpoint that was changed, and delete it if the trainer has all of it too."""
        own = {inode for inode, _, _ in layouts.files(self.source / path.name).values()}
        if all(inode in own for name, (inode, _, _) in layouts.files(path).items() if name != ABOUT):
            self._delete(path)
            return f"the trainer saved {path.name} again, which wrote into {path}; that is no longer kept."
        (path / ABOUT).unlink()
        return f"{path} was changed; it is left as it is and no longer counts as kept."

    def keep(self, checkpoint: Checkpoint, best: Kept) -> None:
        """Keep a checkpoint; one of the same name is replaced. Raises NotKept."""
        name, target = checkpoint.name, self.place / checkpoint.name
        if os.path.lexists(target) and name not in self.kept:
            raise NotKept(f"{target} was not made by Stepwatch, so {name} is not kept. Fix: move it away.")
        shutil.rmtree(self._new, ignore_errors=True)  # of a process that was killed
        try:
            self.place.mkdir(exist_ok=True)
            self._require_room(sum(size for size, _ in best.files.values()))
            shutil.copytree(checkpoint.path, self._new, copy_function=os.link)
            untouched = layouts.files(checkpoint.path) == checkpoint.files and layouts.is_whole(checkpoint)
            if not untouched or facts(layouts.files(self._new)) != best.files:
                raise NotKept(f"{name} is not kept: the trainer changed or deleted it meanwhile.")
            (self._new / ABOUT).write_text(f"{json.dumps(asdict(best))}\n", encoding="utf-8")
            self._delete(target)
            self._new.rename(target)
        except OSError as problem:  # of copytree a list of them
            reason = problem.strerror or problem.args[0][0][-1]
            raise NotKept(f"{name} cannot be kept in {self.place}: {reason}.") from None
        finally:
            shutil.rmtree(self._new, ignore_errors=True)
        self.kept[name] = best

    def drop(self, kept: Kept) -> None:
        """Delete a checkpoint that is no longer among the best, if it is as it was made. Raises NotKept."""
        path = self.place / kept.checkpoint
        del self.kept[kept.checkpoint]
        if facts(layouts.files(path)) != kept.files:
            raise NotKept(f"{path} is no longer kept, but not deleted: it was changed.")
        self._delete(path)

    def _delete(self, path: Path) -> None:
        """Delete a folder, by way of a name that nothing takes for a checkpoint."""
        shutil.rmtree(self._old, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(self._old)
        shutil.rmtree(self._old, ignore_errors=True)

    def _require_room(self, size: int) -> None:
        """What is kept is not freed by the rotation, which the trainer may count on for its next one."""
        disk = os.statvfs(self.place)
        needed = size + min(MOST_MARGIN, int(MARGIN_RATIO * disk.f_blocks * disk.f_frsize))
        free = disk.f_bavail * disk.f_frsize
        if free < needed:
            raise NotKept(
                f"{self.place} has {free / 2**30:.3g} GiB free; keeping a checkpoint takes "
                f"{needed / 2**30:.3g} GiB. Fix: free some space."
            )


def facts(files: layouts.Files) -> dict[str, list[int]]:
    """Return what is compared of a checkpoint's files: not every file system keeps inodes."""
    return {name: [size, changed] for name, (_, size, changed) in files.items() if name != ABOUT}


def _about(place: Path) -> Kept | None:
    """Return what a folder says that it is; ``None`` if that is no kept checkpoint."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return None if place.is_symlink() else Kept(**json.loads((place / ABOUT).read_bytes()))
    return None

"""``python -m tests.killed_writer FOLDER [--failing]``: kill a writer of generated files at every operation.

Each attempt writes from the same old files in a process of its own, which kills itself before its n-th
operation on a file. Where that leaves work to do, the process that does it is killed in the same way.
Prints what is there after the next start: a JSON list of [old, new, [texts after each kill]].
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from stepwatch.render.output import compare, locked, recover, replace, staged

OPERATIONS = {"open", "fsync", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}

OLD = {
    "a/generated/a.yml": "1",
    "a/generated/changed": "1",
    "a/generated/gone": "1",
    "a/generated/gone too/x": "1",
    "a/generated/same": "1",
    "b/generated/deep/changed": "1",
}
NEW = {
    "a/generated/a.yml": "2",
    "a/generated/changed": "2",
    "a/generated/new": "2",
    "a/generated/same": "1",
    "b/generated/deep/changed": "2",
    "b/generated/new/er": "2",
}


def main() -> None:
    folder, failing = Path(sys.argv[1]), sys.argv[2:] == ["--failing"]
    write(folder / "start", OLD)
    after = [texts(out) for out in kills(folder, failing=failing)]
    json.dump([OLD, NEW, after], sys.stdout)


def write(out: Path, wanted: dict[str, str]) -> None:
    files = {PurePosixPath(path): text.encode() for path, text in wanted.items()}
    with locked(out), staged(out, files) as staging:
        replace(out, staging, compare(out, files))


def texts(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): path.read_text()
        for path in out.rglob("*")
        if path.is_file() and not path.relative_to(out).parts[0].startswith(".")
    }


def kills(folder: Path, *, failing: bool) -> Iterator[Path]:
    """Yield the folder after the start that follows each kill."""
    for number in itertools.count():
        out, again = folder / "out", folder / "again"
        copy(folder / "start", out)
        ended = killed_before(number, partial(fail, out) if failing else partial(write, out, NEW))
        if any(out.glob(".generated.*")):
            # Each seventh operation, beginning with another one each time: all of them take a minute.
            for second in itertools.count(number % 7, 7):
                copy(out, again)
                settled = killed_before(second, partial(recover, again))
                recover(again)
                yield again
                if settled:
                    break
        recover(out)
        yield out
        if ended:
            return


def copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def killed_before(number: int, work: Callable[[], None]) -> bool:
    """Do the work in a process that dies before its n-th operation; returns whether it came to the end."""
    child = os.fork()
    if child == 0:
        left = itertools.count(number, -1)

        def hook(event: str, _: object) -> None:
            if event in OPERATIONS and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        really = os.fsync

        def fsync(descriptor: int) -> None:
            sys.audit("fsync", descriptor)
            really(descriptor)

        os.fsync = fsync
        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fail(out: Path) -> None:
    """Write, where the last file but one cannot be moved to its place."""
    really = os.replace

    def refuse(source: Path, target: Path) -> None:
        if Path(target).name == "new":
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        really(source, target)

    os.replace = refuse
    try:
        write(out, NEW)
    except Exception:  # noqa: BLE001  as the command ends, in words
        return


if __name__ == "__main__":
    main()

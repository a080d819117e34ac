"""``python -m tests.killed_writer FOLDER``: kill a writer of generated files before each of its operations.

Each attempt writes from the same old files in a process of its own, which kills itself before its n-th
operation on a file. Prints a JSON list of [old, new, [[texts after the kill, after the next writer]]].
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from stepwatch.render.output import compare, locked, replace, staged

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}

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
    json.dump([OLD, NEW, list(kills(Path(sys.argv[1])))], sys.stdout)


def write(out: Path, wanted: dict[str, str]) -> None:
    files = {PurePosixPath(path): text.encode() for path, text in wanted.items()}
    with locked(out), staged(out, files) as staging:
        replace(out, staging, compare(out, files))


def texts(out: Path) -> dict[str, str]:
    found = (path for path in out.rglob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): path.read_text() for path in found}


def kills(out: Path) -> Iterator[list[dict[str, str]]]:
    for number in itertools.count():
        shutil.rmtree(out, ignore_errors=True)
        write(out, OLD)
        ended = killed_before(number, out)
        left = {path: text for path, text in texts(out).items() if not path.startswith(".generated-")}
        write(out, NEW)
        yield [left, texts(out)]
        if ended:
            return


def killed_before(number: int, out: Path) -> bool:
    """Write in a process that dies before its n-th operation; returns whether it came to the end."""
    child = os.fork()
    if child == 0:
        left = itertools.count(number, -1)

        def hook(event: str, _: object) -> None:
            if event in OPERATIONS and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        write(out, NEW)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    main()

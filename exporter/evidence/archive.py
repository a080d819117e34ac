"""The archive: its path, the order of its contents, and its index."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from exporter.evidence.bounded import Result
from exporter.secret_shapes import scrubbed

MOST_BYTES = 45 * 1024 * 1024
"""Of all contents before they are packed, so that an archive stays below 50 MB whatever it holds."""
KEPT = 20
"""Archives in one folder: the oldest go first."""
SUFFIX = ".evidence.tar.gz"
_OURS = re.compile(r"\d{8}T\d{6}Z-\d+-.*" + re.escape(SUFFIX))
_HALF = ".partial"
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


class WriteError(Exception):
    """Raised when the archive cannot be written: what, why and the fix."""


@dataclass
class Archive:
    """What is packed, and what the index says of it.

    Attributes:
        run: The run's name.
        about: The head of the index.
    """

    run: str
    about: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, results: Sequence[Result], *, until: float) -> Path:
        """Write it in one step and return its path; what comes first among the results has the room first.

        Args:
            folder: Where; archives there that are too many are removed.
            results: What was found.
            until: When to stop packing, in seconds of the monotonic clock: the index names the rest.

        Raises:
            WriteError: It cannot be written. Nothing is left of it.
        """
        now = datetime.now(timezone.utc)
        label = _SAFE.sub("_", self.run).strip("._")[:80] or "run"
        final = folder / f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{label}{SUFFIX}"
        half = folder / f".{final.name}{_HALF}"
        try:
            handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "wb") as out:
                    self._pack(out, results, final.name.removesuffix(".tar.gz"), until)
                    out.flush()
                    os.fsync(out.fileno())
                half.replace(final)
            except BaseException:
                half.unlink(missing_ok=True)
                raise
        except OSError as problem:
            raise unwritable(folder, problem) from None
        _tidy(folder)
        return final

    def _pack(self, out: Any, results: Sequence[Result], top: str, until: float) -> None:
        left, entries = MOST_BYTES, []
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
            for result in results:
                for item in result.items:
                    missing, size = item.missing, item.size
                    if size > left:
                        missing, size = f"left out: {size} bytes exceed the size limit", 0
                    elif time.monotonic() > until:
                        missing, size = "left out: no time left to pack it", 0
                    elif size:
                        _add(tar, f"{top}/{item.name}", item.content())
                    left -= size
                    entries.append(
                        {"name": item.name, "source": item.source, "bytes": size, "missing": missing}
                    )
            tasks = [
                {"task": each.task.name, "seconds": round(each.seconds, 2), "problem": scrubbed(each.problem)}
                for each in results
            ]
            index = {**self.about, "run": self.run, "tasks": tasks, "items": entries}
            text = json.dumps(index, ensure_ascii=False, indent=1).encode("utf-8", "replace")
            _add(tar, f"{top}/index.json", text)
            _add(tar, f"{top}/README.txt", _readme(index).encode("utf-8", "replace"))


def unwritable(folder: Path, problem: OSError) -> WriteError:
    """The error about a folder that cannot be written to."""
    return WriteError(
        f"--out {folder}: cannot be written ({problem.strerror}). Expected: a folder with room for 50 MB. "
        "Fix: make room there, or name another folder."
    )


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(content), 0o600, int(time.time())
    tar.addfile(about, io.BytesIO(content))


def _readme(index: dict[str, Any]) -> str:
    there = [each for each in index["items"] if each["bytes"]]
    lacking = [each for each in index["items"] if each["missing"]]
    late = [each for each in index["tasks"] if each["problem"]]
    lines = [
        f"Evidence about the run {index['run']}, by Stepwatch {index['version']} at {index['collected']}.",
        "Secrets are masked as (secret). index.json has the same for programs.",
        *index["remarks"],
        "",
        "Contents and sources:",
        *(f"  {each['name']}: {each['source']}" for each in there),
        "",
        "Missing or incomplete, and why:",
        *(f"  {each['name']}: {each['missing']}" for each in lacking),
        *(f"  {each['task']}: {each['problem']}" for each in late),
        *([] if lacking or late else ["  nothing"]),
        "",
        "Duration of each part:",
        *(f"  {each['task']}: {each['seconds']} s" for each in index["tasks"]),
    ]
    return "\n".join(lines) + "\n"


def _tidy(folder: Path) -> None:
    """Remove the oldest archives beyond the limit, and halves of which nothing came; nothing else."""
    with suppress(OSError):
        archives = sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name) and _is_own(path))
        for path in archives[:-KEPT]:
            path.unlink(missing_ok=True)
        for path in folder.glob(f".*{SUFFIX}{_HALF}"):
            if _OURS.fullmatch(path.name[1 : -len(_HALF)]) and _is_own(path) and _is_old(path):
                path.unlink(missing_ok=True)


def _is_own(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_uid == os.geteuid()


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > 3600

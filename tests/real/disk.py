"""A small real file system for a test: tmpfs, or ext4 in a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.tools import unavailable

SIZE_MIB = 96
_MAKE = {"ext4": ["mkfs.ext4", "-q", "-m", "0"]}
"""No blocks of ext4 are kept for root, as which the parts of a test run."""


@contextmanager
def small_disk(folder: Path, kind: str, *options: str) -> Iterator[Path]:
    """Mount a file system of 96 MiB at a folder, which is made.

    Args:
        folder: Where.
        kind: "tmpfs" or "ext4".
        options: More of them for `mount`.
    """
    if os.geteuid() != 0:
        unavailable("mounting a small file system takes root")
    folder.mkdir(parents=True)
    if kind in _MAKE:
        image = folder.with_name(f"{folder.name}.{kind}")
        with image.open("wb") as file:
            file.truncate(SIZE_MIB << 20)
        _run(*_MAKE[kind], str(image))
        _run("mount", "-o", ",".join(["loop", *options]), str(image), str(folder))
    else:
        _run("mount", "-t", "tmpfs", "-o", ",".join([f"size={SIZE_MIB}m", *options]), "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    """Write zeros until nothing more fits on the file system."""
    with file.open("ab", buffering=0) as zeros:
        for size in (1 << 20, 512):
            try:
                while zeros.write(bytes(size)) == size:
                    pass
            except OSError:  # no space left
                continue


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        unavailable(f"{command[0]} is not on PATH")
    if done.returncode:
        unavailable(f"{' '.join(command)}: {done.stderr.strip()}")

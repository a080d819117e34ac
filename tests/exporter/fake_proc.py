"""A /proc of our own."""

from __future__ import annotations

from pathlib import Path


def pretend(proc: Path, pid: int, log: Path, flags: str | None) -> None:
    """A process that has the log open with these octal flags."""
    for part in ("fd", "fdinfo"):
        (proc / str(pid) / part).mkdir(parents=True)
    (proc / str(pid) / "fd/3").symlink_to(log)
    if flags is not None:
        (proc / str(pid) / "fdinfo/3").write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t1\n")

"""A /proc of our own."""

from __future__ import annotations

from pathlib import Path


def pretend(proc: Path, pid: int, log: Path, flags: str | None, descriptor: int = 3) -> None:
    """A process that has the log open with these octal flags."""
    for part in ("fd", "fdinfo"):
        (proc / str(pid) / part).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / f"fd/{descriptor}").symlink_to(log)
    if flags is not None:
        (proc / str(pid) / f"fdinfo/{descriptor}").write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t1\n")

"""``python -m stepwatch.system.as_owner COMMAND...``: run a command as the owner of the present folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(command: list[str]) -> None:
    """Become the owner, for good, and then the command."""
    become(Path())
    os.execvp(command[0], command)  # noqa: S606  no shell is wanted


def become(folder: Path) -> None:
    """Take over the user and group of a folder; nothing to do for those who are not root."""
    owner = folder.stat()
    if os.geteuid() == 0 != owner.st_uid:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


if __name__ == "__main__":
    main(sys.argv[1:])

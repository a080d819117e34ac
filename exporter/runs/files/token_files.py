"""Files that hold a token, one word."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

MOST_BYTES = 8192


class TokenFileError(Exception):
    """Raised when a file holds no token: a sentence with its path, and nothing of what is in it."""


def read(path: Path) -> str:
    """The token. Raises TokenFileError: it cannot be read, or holds no token."""
    try:
        token = _content(path).decode("ascii").strip()
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise TokenFileError(f"The token file {path} cannot be read: {reason}.") from None
    except ValueError:
        token = ""
    if not token.isprintable() or not token or " " in token or len(token) > MOST_BYTES:
        raise TokenFileError(f"The token file {path} holds no token. Expected one word.")
    return token


def _content(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a file")  # to open a pipe would be to wait for its other end
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def open_to_all(path: Path) -> str | None:
    """Return a warning about a file that every user of the machine may read, else ``None``."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if not mode & (stat.S_IROTH | stat.S_IWOTH):
        return None
    return (
        f"The token file {path} has mode {stat.S_IMODE(mode):o}, so that every user of this machine knows "
        f"the token or can change it. Fix: chmod o-rwx {path}, with a group that the exporter is in."
    )

"""Which nodes may write to a hub: a folder with a file for each, named after it.

A file holds the SHA-256 (hex) of the node's token. The token has 256 random bits, so a fast hash is enough:
it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

NODE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,63}")
"""A node's name, which is that of a file too: those that begin with a dot are still being written."""

_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 256
_Mark = tuple[int, int, int, int]


def made() -> tuple[str, str]:
    """Return a new token, and what its file holds."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


class Credentials:
    """The credentials in a folder, read at each check."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unusable: frozenset[str] = frozenset()
        """Files that hold no credential, at the last look."""
        self._known: dict[str, tuple[_Mark, str]] = {}

    def nodes(self) -> Collection[str]:
        """Look at the folder; returns the nodes that may write."""
        found: dict[str, tuple[_Mark, str]] = {}
        unusable = set()
        with suppress(OSError), os.scandir(self.folder) as entries:  # none, and none may write
            for entry in entries:
                if not NODE_NAME.fullmatch(entry.name):
                    continue
                with suppress(OSError):  # removed between the two
                    status = entry.stat()
                    # The last changes with the permissions, too.
                    mark = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
                    known = self._known.get(entry.name)
                    text = known[1] if known and known[0] == mark else self._read(entry.name)
                    found[entry.name] = mark, text
                    if not text:
                        unusable.add(entry.name)
        self._known, self.unusable = found, frozenset(unusable)
        return [name for name, (_, text) in found.items() if text]

    def node(self, authorization: str) -> str | None:
        """Return the node whose token the header ``Authorization`` has, or ``None``."""
        kind, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        owner = None
        for name in self.nodes():  # all of them, so that the time does not reveal which
            if hmac.compare_digest(self._known[name][1], digest):
                owner = name
        return owner if kind.lower() == "bearer" else None

    def _read(self, name: str) -> str:
        try:
            with (self.folder / name).open("rb") as file:
                text = file.read(_MOST_BYTES).decode("ascii", "replace").strip()
        except OSError:
            return ""
        return text if _HASH.fullmatch(text) else ""

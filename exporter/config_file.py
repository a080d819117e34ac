"""A program's settings in one file, which is read again when it is replaced.

JSON, which is YAML, too: the GPU exporter's front needs no other parser.
"""

from __future__ import annotations

import json
import os
from typing import Any

COMMENT = "__"
"""Keys that begin so are comments."""

EXAMPLE = '{"port": 9410}'
LARGEST_FILE = 4 * 1024 * 1024


class ConfigFileError(ValueError):
    """Raised when the file cannot be used; its text is the whole message."""


class ConfigFile:
    """A mapping of settings at ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._mark()

    def values(self) -> dict[str, Any]:
        """Return the settings without the comments.

        Raises:
            ConfigFileError: The file cannot be read, or is not a JSON mapping.
        """
        self._seen = self._mark()
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  (pathlib weighs 1 MB)
                content = file.read(LARGEST_FILE + 1)
        except OSError as problem:
            raise self.error(
                f"cannot be read ({problem.strerror})", "a file that this user may read"
            ) from None
        if len(content) > LARGEST_FILE:
            raise self.error(f"larger than {LARGEST_FILE >> 20} MiB", "a file of settings")
        try:
            found = json.loads(content)
        except json.JSONDecodeError as problem:
            place = f"invalid JSON in line {problem.lineno} ({problem.msg})"
            raise self.error(place, f"a mapping such as {EXAMPLE}") from None
        except (ValueError, RecursionError):
            # Other bytes than UTF-8, a number of thousands of digits, or mappings nested too deep.
            raise self.error("invalid JSON", f"a mapping such as {EXAMPLE} in UTF-8") from None
        if not isinstance(found, dict):
            raise self.error("not a mapping", f"one such as {EXAMPLE}")
        return {key: value for key, value in found.items() if not key.startswith(COMMENT)}

    def changed(self) -> bool:
        """Whether it was replaced since its values were read."""
        return self._mark() != self._seen

    def error(self, problem: str, expected: str) -> ConfigFileError:
        """Return the error for a problem of this file."""
        return ConfigFileError(
            f"{self.path}: {problem}. Expected {expected}. "
            "Fix: correct the file; if generate.py wrote it, run python generate.py."
        )

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116  (as above)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

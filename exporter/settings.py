"""A file of settings, lines ``NAME=value``, which is read again when it is replaced."""

from __future__ import annotations

import os

VARIABLE = "STEPWATCH_SETTINGS"


class SettingsFile:
    """The file that the variable names, or none; a missing one holds nothing."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self._seen = self._mark()

    @classmethod
    def named(cls) -> SettingsFile:
        """The one that the environment names."""
        return cls(os.environ.get(VARIABLE) or None)

    def values(self) -> dict[str, str]:
        """What the file says now."""
        self._seen = self._mark()
        if self.path is None or self._seen is None:
            return {}
        with open(self.path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib weighs 1 MB)
            lines = file.read().splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, value in pairs}

    def changed(self) -> bool:
        """Whether it was replaced since its values were read."""
        return self._mark() != self._seen

    def _mark(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path) if self.path else None  # noqa: PTH116
        except OSError:
            return None
        return (status.st_ino, status.st_mtime_ns) if status else None

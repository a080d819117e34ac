"""All that a backtest has to tell, and the folder that it is kept in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import orjson

from stepwatch.backtest.results import Results
from stepwatch.backtest.suggestions import Suggestion
from stepwatch.schema.errors import Refused

PAGE, DOCUMENT = "index.html", "backtest.json"


@dataclass(frozen=True)
class Report:
    """The results, the values that were ``tried`` in place of the file's, and what other limits would do.

    ``suggestions`` is None where no one asked for them.
    """

    results: Results
    tried: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] | None = None

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        found = {**self.results.document(), "tried": list(self.tried)}
        if self.suggestions is not None:
            found["suggestions"] = [suggestion.document() for suggestion in self.suggestions]
        return found

    def json(self) -> str:
        """The document as text."""
        return orjson.dumps(self.document(), option=orjson.OPT_INDENT_2).decode()


class FolderError(Refused):
    """Raised when a report cannot be written."""


def make(folder: Path) -> None:
    """Make the folder of a report, if it is missing, before the work begins.

    Raises:
        FolderError: It cannot be made, or not be written to.
    """
    with _in_words(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a report, by name.

    Raises:
        FolderError: They cannot be written.
    """
    with _in_words(folder):
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FolderError(
            f"--report {folder}: {error.strerror}. Expected: a folder to write {PAGE} and {DOCUMENT} to. "
            "Fix: name another one, or correct its permissions."
        ) from error

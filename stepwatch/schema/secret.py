"""Types of files that hold a secret. What is in them is judged, and never repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import ValidationInfo

from stepwatch.schema.errors import Fault
from stepwatch.schema.path_types import to_path
from stepwatch.schema.section import Checked

MAX_BYTES = 8192


def read(path: Path) -> str:
    """The secret in a file, without the space around it.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: It holds no text.
    """
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1).decode().strip()


def _file(what: str, judge: Callable[[str], str | None]) -> Callable[[Any, ValidationInfo], Path]:
    def check(value: Any, info: ValidationInfo) -> Path:
        path = to_path(value, info)
        if info.context and (fault := _fault(path, judge)):
            raise Fault(
                fault,
                expected=f"a file with nothing but {what}, its path seen from {info.context['folder']}",
                fix=f"put {what} into a file of its own, and write the file's path here",
            )
        return path

    return check


def _fault(path: Path, judge: Callable[[str], str | None]) -> str | None:
    try:
        return judge(read(path)) if path.is_file() else "names no file"
    except OSError as error:
        return f"names a file that cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        return "names a file that holds no text"


def _line(content: str) -> str | None:
    if not content:
        return "names an empty file"
    if len(content) > MAX_BYTES or len(content.splitlines()) > 1:
        return "names a file with more than one line"
    return None


def _url(content: str) -> str | None:
    return _line(content) or (None if _is_url(content) else "names a file that holds no URL")


def _is_url(content: str) -> bool:
    try:
        url = urlsplit(content)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.hostname) and " " not in content


SecretFile = Annotated[Path, Checked(_file("the secret", _line), located=True)]
SecretUrlFile = Annotated[Path, Checked(_file("the URL", _url), located=True)]

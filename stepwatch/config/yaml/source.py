"""The text of a configuration file, or a refusal in words."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from stepwatch.schema.errors import ConfigError, refusal

MAX_BYTES = 2 * 1024 * 1024

# What YAML 1.2 calls printable; anything else ends a parser in words that help no one.
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: The path is missing, a folder, unreadable, too large or no UTF-8 text.
    """
    return _decode(path, _bytes(path))


def _bytes(path: Path) -> bytes:
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise refusal(str(path), "is a folder", expected="a YAML file", fix="name the file in it")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if len(data) > MAX_BYTES:
        raise refusal(
            str(path),
            "is larger than 2 MiB",
            expected="a configuration file",
            fix="name the right file, and long target lists under scrape[].files",
        )
    return data


def _unreadable(path: Path, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return refusal(
        str(path),
        f"cannot be read ({reason[:1].lower()}{reason[1:]})",
        expected="a YAML file this user may read",
        fix=f"check the path and its permissions (working folder: {os.getcwd()})",  # noqa: PTH109  text
    )


def _decode(path: Path, data: bytes) -> str:
    if b"\0" in data:
        raise refusal(
            str(path), "holds NUL bytes", expected="UTF-8 text", fix="name a YAML file, not a binary one"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad_text(path, data[: error.start].count(b"\n"), f"byte 0x{data[error.start]:02x}") from error
    if bad := _UNPRINTABLE.search(text):
        raise _bad_text(path, text[: bad.start()].count("\n"), f"character U+{ord(bad[0]):04X}")
    return text


def _bad_text(path: Path, lines_before: int, what: str) -> ConfigError:
    return refusal(
        str(path),
        f"{what} is no printable UTF-8 text",
        expected="UTF-8 text",
        fix="save the file as UTF-8 and delete what cannot be seen",
        line=lines_before + 1,
    )

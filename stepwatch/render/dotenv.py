"""The file .env beside compose.yaml, so that a bare `docker compose` means the same stack as `make up`.

What is ours stands between two marks; the rest of the file is the user's, and counts more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stepwatch.render import output

BEGIN = "# Stepwatch: from config.yaml and this machine, written again by `make up` and `generate`."
END = "# Stepwatch: end. Other lines are yours, and count more where `docker compose` is run by itself."

_BLOCK = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)
_LINE = re.compile(r"^\s*(?:export\s+)?(\w+)\s*=", re.MULTILINE)


def update(file: Path, variables: Mapping[str, str]) -> None:
    """Set our variables; those of an earlier time that are not named now stay.

    Raises:
        OutputError: the file cannot be written.
    """
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    ours = _BLOCK.search(text)
    theirs = _BLOCK.sub("", text)
    kept = _pairs(ours[0].splitlines()[1:-1]) if ours else {}
    lines = {**kept, **{name: _quoted(value) for name, value in variables.items()}}
    for name in _LINE.findall(theirs):
        lines.pop(name, None)
    block = "".join(f"{name}={value}\n" for name, value in sorted(lines.items()))
    fresh = f"{theirs}{BEGIN}\n{block}{END}\n"
    if fresh != text:
        output.replace_file(file, fresh.encode())


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines)


def _quoted(value: str) -> str:
    """As Compose reads it back unchanged."""
    if re.fullmatch(r"[\w./:@%+,-]*", value):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = re.sub(r'([\\"$])', r"\\\1", value)
    return f'"{escaped}"'

"""Dicts of numbers as Python prints them, read without ``eval``.

Keys stay as they were logged, values are the text behind them (``number`` reads it), or ``None``
for ``None``. What is nested is left out. A printed dict may be broken over several lines, by a
pretty printer or a narrow terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 64 * 1024
"""Characters. No trainer's record is longer."""

LONGEST_PREFIX = 300
"""Characters kept of what stands before a dict."""

MOST_LINES = 200
"""Lines that one dict may be broken into."""

Values = dict[str, str | None]

_START = re.compile(r"\{(?=\s*(?:'|\Z))")
"""JSON has other quotes: where a trainer's records are printed as JSON too, they are not read twice."""

_KEY = r"\s*(?:'([^'\\{}]*)'|\"([^\"\\{}]*)\")\s*:\s*"
_TEXT = r"'([^'\\]*)'|\"([^\"\\]*)\""
_BARE = r"([^\s,'\"\[\](){}][^,'\"\[\](){}]*(?:\([^(){}]*\))?)"
_PAIR = re.compile(rf"{_KEY}(?:{_TEXT}|{_BARE}|(?=[\[({{'\"]))")
_SEPARATOR = re.compile(r"\s*([,}])")
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)|[\[\](){}]", re.DOTALL)
_FIRST_VALUE = 3


class Dicts:
    """The dicts of one log, which come line by line."""

    def __init__(self) -> None:
        self._held = ""
        self._lines = 0

    def parse(self, text: str) -> Iterator[tuple[str, Values]]:
        """The dicts that end in the next line of the log, each with the text before it."""
        if not self._held and "{" not in text:
            return
        held, self._held = self._held, ""
        self._lines = self._lines + 1 if held else 0
        if held and self._lines <= MOST_LINES and len(held) + len(text) <= LONGEST:
            text = f"{held}\n{text}"
        position = 0
        last = text.rfind("}")
        while start := _START.search(text, position):
            before = text[max(position, start.start() - LONGEST_PREFIX) : start.start()]
            values, end = _parse(text, start.end())
            if values is not None:
                yield before.rpartition("\n")[2], values
            elif end > last:
                self._held = before + text[start.start() :]
                return
            position = end

    @property
    def is_open(self) -> bool:
        """Whether the last line ended within a dict."""
        return bool(self._held)


def _parse(text: str, position: int) -> tuple[Values | None, int]:
    """The dict whose first key is at this position, and its end.

    If there is none: ``None``, and the position up to which the text was understood.
    """
    values: Values = {}
    limit = position + LONGEST
    while pair := _PAIR.match(text, position, limit):
        last = pair.lastindex or 0
        if last < _FIRST_VALUE:
            position = _skip_nested(text, pair.end(), limit)
        else:
            position, value = pair.end(), pair[last].replace("\n", "").strip()
            values[(pair[1] or pair[2] or "").replace("\n", "")] = None if value == "None" else value
        separator = _SEPARATOR.match(text, position, limit)
        if separator is None:
            break
        position = separator.end()
        if separator[1] == "}":
            return values, position
    return None, position


def _skip_nested(text: str, position: int, limit: int) -> int:
    """Where the value that starts here ends: a list, a dict, or a text with escapes in it."""
    depth = 0
    for token in _TOKEN.finditer(text, position, limit):
        if token[0] in "[({":
            depth += 1
        elif token[0] in "])}":
            depth -= 1
        if depth <= 0:
            return token.end()
    return min(limit, len(text))

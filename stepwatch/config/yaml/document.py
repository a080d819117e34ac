"""A YAML document as plain values, with the line of every key path and what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping as Map
from dataclasses import dataclass
from typing import Any

from stepwatch.config.yaml.nodes import Mapping, Node, Scalar, Sequence, compose
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem, Written, refusal

# What a word without quotes means: text, number, switch or nothing, and where YAML 1.1 would surprise.
#
# YAML 1.1 reads `on` as true, `22:22` as 1342 and `0777` as 511; YAML 1.2 does not, and people
# expect either. Such words are refused, so that no one's reading is silently the wrong one.
_NULL = {"null", "Null", "NULL", "~"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(
    r"(?=.*[.eE])[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,5})?"
)

_SURPRISES = (
    (
        re.compile(r"(?i:on|off|yes|no)"),
        "is a switch to some YAML readers and text to others",
        "true or false, or the word in quotes",
    ),
    (re.compile(r"[-+]?\.(?i:inf|nan)"), "is not finite", "a finite number"),
    (
        re.compile(r"[-+]?[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?"),
        "is a number of base 60 to some YAML readers",
        "a number, a duration such as 10m, or the text in quotes",
    ),
    (
        re.compile(r"[-+]?0([0-9_]+|[oO][0-7_]+|[xX][0-9a-fA-F_]+|[bB][01_]+)"),
        "is octal, hexadecimal or binary to some YAML readers",
        "a decimal number without leading zeros, or the text in quotes",
    ),
    (
        re.compile(r"[-+]?\.?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"),
        "is a number to some YAML readers and text to others",
        "a number without underscores, or the text in quotes",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"),
        "is a date to some YAML readers",
        "the text in quotes",
    ),
    (
        re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?"),
        "has more digits than any limit needs",
        "a number of at most 18 digits, or the text in quotes",
    ),
)


def resolve(word: str) -> str | int | float | bool | None:
    """Return the value of a word without quotes.

    Raises:
        Fault: YAML readers disagree about the word, or it is missing.
    """
    if word in _NULL:
        return None
    if word in _BOOL:
        return _BOOL[word]
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word) and math.isfinite(float(word)):
        return float(word)
    _refuse_surprises(word)
    return word


def _refuse_surprises(word: str) -> None:
    if not word:
        raise Fault(
            "has no value",
            expected="a value behind the colon or dash",
            fix="write one, null or [] for none, or delete the line",
        )
    for pattern, says, expected in _SURPRISES:
        if pattern.fullmatch(word):
            raise Fault(says, expected=expected, fix="write what is meant in that form")


MAX_NODES = 100_000

# Stands where a value could not be read; every check of a value refuses it, and the reader's own
# problem is the one that is shown.
UNREADABLE = object()

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Document:
    """What a file says, where it says it, and what in it could not be understood."""

    values: Any
    lines: Map[KeyPath, int]
    problems: tuple[Problem, ...]

    def line(self, path: KeyPath) -> int:
        """Return the line of a key path, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, name: str) -> Document:
    """Return the document of a YAML text; an empty one is an empty mapping.

    Args:
        text: The YAML text.
        name: The file's name for messages.

    Raises:
        ConfigError: The text is not valid YAML that could be read to its end.
    """
    node = compose(text, name)
    if node is None:
        return Document({}, {}, ())
    builder = _Builder(name)
    values = builder.value(node, ())
    return Document(values, builder.lines, tuple(builder.problems))


class _Builder:
    def __init__(self, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._name = name

    def value(self, node: Node, path: KeyPath) -> Any:
        self._note_line(node, path)
        if isinstance(node, Scalar):
            return self._scalar(node, path)
        if isinstance(node, Sequence):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _note_line(self, node: Node, path: KeyPath) -> None:
        # Aliases share nodes, so a small file can stand for a huge document.
        if len(self.lines) >= MAX_NODES:
            raise self._too_large(node.line)
        self.lines.setdefault(path, node.line)

    def _too_large(self, line: int) -> ConfigError:
        return refusal(
            self._name,
            f"the document grows beyond {MAX_NODES} values",
            expected="a configuration file",
            fix="write fewer aliases of aliases, and long target lists under scrape[].files",
            line=line,
        )

    def _scalar(self, node: Scalar, path: KeyPath) -> Any:
        try:
            return _read(node)
        except Fault as fault:
            self._problem(node.line, fault, path, Written(node.text) if node.text else NOTHING)
            return UNREADABLE

    def _mapping(self, node: Mapping, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.pairs:
            key = self._key(key_node, path)
            if key is not None and self._is_new(key, values, key_node.line, path):
                self.lines[(*path, key)] = key_node.line
                values[key] = self.value(value_node, (*path, key))
        return values

    def _key(self, node: Node, path: KeyPath) -> str | None:
        try:
            return _word(node)
        except Fault as fault:
            text = node.text if isinstance(node, Scalar) else "(a list or mapping)"
            self._problem(node.line, fault, path, Written(f"the key {text}"))
            return None

    def _is_new(self, key: str, values: dict[str, Any], line: int, path: KeyPath) -> bool:
        if key not in values:
            return True
        first = self.lines[(*path, key)]
        fault = Fault(
            f"is given twice, first in line {first}", expected="each key once", fix="delete one of the two"
        )
        self._problem(line, fault, (*path, key), NOTHING)
        return False

    def _problem(self, line: int, fault: Fault, path: KeyPath, value: str) -> None:
        self.problems.append(Problem(line, fault.of(value).below(path)))


def _read(node: Scalar) -> Any:
    value = resolve(node.text) if node.plain else node.text
    if isinstance(value, str) and _CONTROL.search(value):
        raise Fault("holds a control character", expected="printable text", fix="delete it from the text")
    return value


def _word(node: Node) -> str:
    word = _read(node) if isinstance(node, Scalar) else None
    if isinstance(word, str):
        return word
    raise Fault("is no word", expected="a word as key", fix="quote it if the word is meant")

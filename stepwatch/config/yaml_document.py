"""YAML text as plain values, with the line of every key path and what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem, Written, refusal

MAX_DEPTH = 32
MAX_NODES = 100_000

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

UNREADABLE = object()
"""A value that could not be read: every check refuses it, and the reader's own problem is shown."""

# What a word without quotes means: text, number, switch or nothing, and where YAML 1.1 would surprise.
#
# YAML 1.1 reads `on` as true, `22:22` as 1342 and `0777` as 511; YAML 1.2 does not, and people
# expect either. Such words are refused, so that no one's reading is silently the wrong one.
_NULL = {"null", "Null", "NULL", "~"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_FLOAT = re.compile(
    r"(?=.*[.eE])[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,5})?"
)

_SURPRISES = (
    (
        re.compile(r"(?i:on|off|yes|no)"),
        "is a boolean to some YAML readers and text to others",
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


"""A key that people know from other files, without quotes; here no key can be a switch."""


@dataclass(frozen=True)
class Document:
    """What a file says, where it says it, and what in it could not be understood."""

    values: Any
    lines: Mapping[KeyPath, int]
    problems: tuple[Problem, ...]

    def line(self, path: KeyPath) -> int:
        """Return the line of a key path, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, name: str) -> Document:
    """Return the document of a YAML text; an empty one is an empty mapping. Raises ConfigError."""
    try:
        node = _Composer(yaml.parse(text, Loader=LOADER), name).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, name) from error
    if node is None:
        return Document({}, {}, ())
    builder = _Builder(name)
    values = builder.value(node, ())
    return Document(values, builder.lines, tuple(builder.problems))


def _syntax(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    lines = text.splitlines()
    near = lines[line] if line < len(lines) else ""
    if "\t" in near[: len(near) - len(near.lstrip())] or "\\t" in (error.problem or ""):
        says, fix = "a tab is used where YAML requires spaces", "indent with spaces only"
    else:
        says = f"the text is not valid YAML ({error.problem or error.context})"
        fix = "check indentation, colons, quotes and brackets in this line and the one before"
    return refusal(name, says, expected="YAML", fix=fix, line=line + 1)


@dataclass(frozen=True)
class _Node:
    """A word or quoted text, a list of nodes, or a mapping's pairs in the order written, doubles included."""

    line: int
    text: str | None = None
    plain: bool = False
    """Without quotes: the text may mean a number, a boolean or null."""
    items: tuple[_Node, ...] = ()
    pairs: tuple[tuple[_Node, _Node], ...] | None = None


class _Composer:
    """Makes nodes of YAML's events; aliases share them."""

    def __init__(self, events: Iterator[Any], name: str) -> None:
        self._events = events
        self._name = name
        self._anchors: dict[str, _Node | None] = {}

    def document(self) -> _Node | None:
        """Return the one document of the text, None where it holds nothing."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        node = self._node(next(self._events), 0)
        next(self._events)
        end = next(self._events)
        if not isinstance(end, yaml.StreamEndEvent):
            raise self._refusal(
                end, "a second document starts here", "one document", 'delete the "---" between them'
            )
        return None if node == _Node(node.line, "", plain=True) else node

    def _node(self, event: Any, depth: int) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            aliased = self._anchors.get(str(event.anchor))
            if aliased is None:
                holds_itself = event.anchor in self._anchors
                raise self._refusal(
                    event,
                    f"*{event.anchor} {'contains itself' if holds_itself else 'names no anchor'}",
                    f"an anchor &{event.anchor} whose value ends before",
                    "write the value out",
                )
            return aliased
        if event.tag:
            raise self._refusal(
                event, f"the tag {event.tag} is used", "values without tags", "delete it; quotes make a text"
            )
        if depth > MAX_DEPTH:
            raise self._refusal(
                event,
                f"the nesting is deeper than {MAX_DEPTH} levels",
                "the few levels of the shipped config.yaml",
                "check the indentation and the brackets",
            )
        if event.anchor:
            self._anchors[event.anchor] = None
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            node = _Node(line, event.value, plain=not event.style)
        else:
            children = tuple(self._children(depth + 1))
            if isinstance(event, yaml.SequenceStartEvent):
                node = _Node(line, items=children)
            else:
                node = _Node(line, pairs=tuple(zip(children[::2], children[1::2], strict=True)))
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _children(self, depth: int) -> Iterator[_Node]:
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield self._node(event, depth)

    def _refusal(self, event: Any, says: str, expected: str, fix: str) -> ConfigError:
        return refusal(self._name, says, expected=expected, fix=fix, line=event.start_mark.line + 1)


@dataclass
class _Builder:
    """Makes plain values of nodes, and notes their lines."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: _Node, path: KeyPath) -> Any:
        # Aliases share nodes, so a small file can stand for a huge document.
        if len(self.lines) >= MAX_NODES:
            raise refusal(
                self.name,
                f"the document grows beyond {MAX_NODES} values",
                expected="a configuration file",
                fix="write fewer aliases of aliases, and long target lists under scrape[].files",
                line=node.line,
            )
        self.lines.setdefault(path, node.line)
        if node.text is not None:
            try:
                return _read(node.text, plain=node.plain)
            except Fault as unread:
                self._problem(node.line, unread, path, Written(node.text) if node.text else NOTHING)
                return UNREADABLE
        if node.pairs is None:
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        values: dict[str, Any] = {}
        for key_node, value_node in node.pairs:
            key = self._key(key_node, path)
            if key in values:
                first = self.lines[(*path, key)]
                says = f"is given twice, first in line {first}"
                twice = Fault(says, expected="each key once", fix="delete one of the two")
                self._problem(key_node.line, twice, (*path, key), NOTHING)
            elif key is not None:
                self.lines[(*path, key)] = key_node.line
                values[key] = self.value(value_node, (*path, key))
        return values

    def _key(self, node: _Node, path: KeyPath) -> str | None:
        fault = Fault("is not a word", expected="a word as key", fix="quote it if it is meant as a word")
        try:
            word = None if node.text is None else _read(node.text, plain=node.plain and node.text != "on")
            if isinstance(word, str):
                return word
        except Fault as unread:
            fault = unread
        text = "(a list or mapping)" if node.text is None else node.text
        self._problem(node.line, fault, path, Written(f"the key {text}"))
        return None

    def _problem(self, line: int, fault: Fault, path: KeyPath, value: str) -> None:
        self.problems.append(Problem(line, fault.of(value).below(path)))


def _read(text: str, *, plain: bool) -> Any:
    """Return the value of a word without quotes, or of a quoted text. Raises Fault."""
    if plain and text in _NULL:
        return None
    if plain and text in _BOOL:
        return _BOOL[text]
    if plain and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", text):
        return int(text)
    if plain and _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if plain and not text:
        raise Fault(
            "has no value",
            expected="a value behind the colon or dash",
            fix="write one, null or [] for none, or delete the line",
        )
    for pattern, says, expected in _SURPRISES if plain else ():
        if pattern.fullmatch(text):
            raise Fault(says, expected=expected, fix="write it in that form")
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise Fault("holds a control character", expected="printable text", fix="delete it from the text")
    return text

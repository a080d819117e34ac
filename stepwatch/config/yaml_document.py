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
        _check(yaml.parse(text, Loader=LOADER), name)
        node = yaml.compose(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, name) from error
    if node is None or (isinstance(node, yaml.ScalarNode) and not (node.value or node.style)):
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


def _check(events: Iterator[Any], name: str) -> None:
    """Refuse what no configuration needs, before PyYAML makes nodes of it: deep nesting ends the process."""
    complete: set[str | None] = set()
    around: list[str | None] = []
    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        anchor, says = getattr(event, "anchor", None), ""
        if documents > 1:
            says, expected = "a second document starts here", "one document"
            fix = 'delete the "---" between them'
        elif isinstance(event, yaml.AliasEvent) and anchor not in complete:
            says = f"*{anchor} {'contains itself' if anchor in around else 'names no anchor'}"
            expected, fix = f"an anchor &{anchor} whose value ends before", "write the value out"
        elif anchor in (*complete, *around) and anchor and not isinstance(event, yaml.AliasEvent):
            says, expected = f"the anchor &{anchor} is given twice", "each anchor once"
            fix = "rename one of the two"
        elif tag := getattr(event, "tag", None):
            says, expected = f"the tag {tag} is used", "values without tags"
            fix = "delete it; quotes make a text"
        elif isinstance(event, yaml.NodeEvent) and len(around) > MAX_DEPTH:
            says, expected = (
                f"the nesting is deeper than {MAX_DEPTH} levels",
                "the few levels of the shipped config.yaml",
            )
            fix = "check the indentation and the brackets"
        if says:
            raise refusal(name, says, expected=expected, fix=fix, line=event.start_mark.line + 1)
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(anchor)
        elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            complete.add(around.pop() if isinstance(event, yaml.CollectionEndEvent) else anchor)


@dataclass
class _Builder:
    """Makes plain values of nodes, and notes their lines."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        line = node.start_mark.line + 1
        # Aliases share nodes, so a small file can stand for a huge document.
        if len(self.lines) >= MAX_NODES:
            raise refusal(
                self.name,
                f"the document grows beyond {MAX_NODES} values",
                expected="a configuration file",
                fix="write fewer aliases of aliases, and long target lists under scrape[].files",
                line=line,
            )
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            try:
                return _read(node.value, plain=not node.style)
            except Fault as unread:
                self._problem(line, unread, path, Written(node.value) if node.value else NOTHING)
                return UNREADABLE
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, self._key(key_node, path)
            if key in values:
                says = f"is given twice, first in line {self.lines[(*path, key)]}"
                twice = Fault(says, expected="each key once", fix="delete one of the two")
                self._problem(line, twice, (*path, key), NOTHING)
            elif key is not None:
                self.lines[(*path, key)] = line
                values[key] = self.value(value_node, (*path, key))
        return values

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        fault = Fault("is not a word", expected="a word as key", fix="quote it if it is meant as a word")
        text = node.value if isinstance(node, yaml.ScalarNode) else "(a list or mapping)"
        try:
            # People know `on` as a key from other files; here no key can be a boolean.
            if isinstance(node, yaml.ScalarNode) and isinstance(
                word := _read(text, plain=not node.style and text != "on"), str
            ):
                return word
        except Fault as unread:
            fault = unread
        self._problem(node.start_mark.line + 1, fault, path, Written(f"the key {text}"))
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

"""YAML text as a tree of nodes that know their line; nothing is guessed about types here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from stepwatch.schema.errors import ConfigError, refusal

MAX_DEPTH = 32

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Scalar:
    """One word or quoted text; a plain one has no quotes and may mean a number, a switch or nothing."""

    line: int
    text: str
    plain: bool


@dataclass(frozen=True)
class Sequence:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Mapping:
    """Keys and values in the order written, doubles included."""

    line: int
    pairs: tuple[tuple[Node, Node], ...]


Node = Scalar | Sequence | Mapping


def compose(text: str, name: str) -> Node | None:
    """Return the one document of a YAML text, or None where it holds nothing.

    Args:
        text: The YAML text.
        name: The file's name for messages.

    Raises:
        ConfigError: The text is not valid YAML, or uses what is not accepted here: tags, several documents,
            aliases that hold themselves, nesting deeper than MAX_DEPTH.
    """
    try:
        return _Composer(yaml.parse(text, Loader=LOADER), name).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, name) from error


class _Composer:
    def __init__(self, events: Iterator[Any], name: str) -> None:
        self._events = events
        self._name = name
        self._anchors: dict[str, Node | None] = {}

    def document(self) -> Node | None:
        next(self._events)
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            return None
        node = self._node(next(self._events), 0)
        next(self._events)
        self._end(next(self._events))
        return None if node == Scalar(node.line, "", plain=True) else node

    def _end(self, event: Any) -> None:
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._refusal(
                event, "a second document starts here", "one document", 'delete the "---" between them'
            )

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        self._check(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = None
        node = self._content(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _content(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(line, event.value, plain=not event.style)
        children = tuple(self._children(depth + 1))
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(line, children)
        return Mapping(line, tuple(zip(children[::2], children[1::2], strict=True)))

    def _children(self, depth: int) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield self._node(event, depth)

    def _alias(self, event: Any) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise self._refusal(
                event,
                f"*{event.anchor} "
                + ("holds itself" if event.anchor in self._anchors else "names no anchor"),
                f"an anchor &{event.anchor} whose value ends before",
                "write the value out",
            )
        return node

    def _check(self, event: Any, depth: int) -> None:
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

    def _refusal(self, event: Any, says: str, expected: str, fix: str) -> ConfigError:
        return refusal(self._name, says, expected=expected, fix=fix, line=event.start_mark.line + 1)


def _syntax(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    lines = text.splitlines()
    near = lines[line] if line < len(lines) else ""
    if "\t" in near[: len(near) - len(near.lstrip())] or "\\t" in (error.problem or ""):
        says, fix = "a tab stands where YAML wants spaces", "indent with spaces only"
    else:
        says = f"the text is not valid YAML ({error.problem or error.context})"
        fix = "check indentation, colons, quotes and brackets in this line and the one before"
    return refusal(name, says, expected="YAML", fix=fix, line=line + 1)

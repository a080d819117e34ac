"""Where a line of a generated file comes from: which line of which template.

For that the template is rendered once more, with a mark in front of each line's own text. It is done
only when a tool has refused a file, since Jinja itself keeps no account of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from stepwatch.render import environment

_MARK = re.compile("\x02(.*?):(\\d+)\x03")
_TEXT = re.compile(r"\S")


class Origin(NamedTuple):
    """A line of a template, whose path is below the folder of the services."""

    template: str
    line: int

    def __str__(self) -> str:
        return f"{self.template}:{self.line}"


class _Marking(Extension):
    """Puts its origin in front of the text of each line; what expressions write has none."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            marked = _marked(token.value, stream.name, token.lineno) if token.type == "data" else token.value
            yield Token(token.lineno, token.type, marked)


def _marked(text: str, template: str | None, first: int) -> str:
    lines = enumerate(text.split("\n"), first)
    return "\n".join(_TEXT.sub(f"\x02{template}:{at}\x03\\g<0>", line, count=1) for at, line in lines)


_REFUSED = re.compile(
    r'^(?P<file>\S+): (?:(?P<line>\d+):\d+: )?group "[^"]*", rule (?P<rule>\d+), "(?P<alert>[^"]*)": '
    r"(?:could not parse expression: (?P<inside>\d+):)?",
    re.MULTILINE,
)
"""What promtool says of a rule that it refuses: the line of its expression, and the line inside it."""


def of_refused_rules(words: str, root: Path, context: Mapping[str, Any]) -> list[str]:
    """Return where each rule is written that promtool refuses, a line each.

    Args:
        words: What promtool says, with files by their path below the target folder.
        root: The folder that holds `<service>/templates`.
        context: What templates know by name.
    """
    said, files = [], dict[str, list[_Line]]()
    for refused in _REFUSED.finditer(words):
        file = refused["file"]
        lines = files[file] = files.get(file) or _lines(root, context, PurePosixPath(file))
        rule = _rule(lines, int(refused["rule"]))
        last = int(refused["line"] or 0) + int(refused["inside"] or 0)
        if origin := _written(lines, rule, last):
            said.append(f"{refused['alert']} is written in {origin}. Fix: correct the template there.")
    return list(dict.fromkeys(said))


class _Line(NamedTuple):
    """A line of a generated file, and where its text is from."""

    text: str
    origins: tuple[Origin, ...]


def _lines(root: Path, context: Mapping[str, Any], file: PurePosixPath) -> list[_Line]:
    """The lines of a generated file, the first of which says that it is generated."""
    template = PurePosixPath(file.parts[0], "templates", *file.parts[2:])
    marking = environment(root, context)
    marking.bytecode_cache = None  # what was compiled before has no marks
    marking.add_extension(_Marking)
    text = marking.get_template(f"{template}.j2").render()
    return [_Line("", ()), *map(_line, text.split("\n"))]


def _line(marked: str) -> _Line:
    origins = (Origin(found[1], int(found[2])) for found in _MARK.finditer(marked))
    return _Line(_MARK.sub("", marked), tuple(origins))


def _rule(lines: list[_Line], number: int) -> range:
    """Where the n-th rule of a file stands, by the index of its lines."""
    starts = [at for at, line in enumerate(lines) if line.text.startswith("  - ")]
    return range(*[*starts, len(lines)][number - 1 : number + 1])


def _written(lines: list[_Line], rule: range, last: int) -> Origin | None:
    """The origin of a rule's line, counted from 1, or of the one nearest to it that the rule alone has.

    What stands around every condition is from the template of the rule's first line, and is no news.
    """
    near = [*range(last - 1, rule.start - 1, -1), *rule]
    shared = {origin.template for origin in lines[rule.start].origins}
    own = (origin for at in near for origin in lines[at].origins if origin.template not in shared)
    return next(own, None)

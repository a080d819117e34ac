"""Rules with one thing wrong, to see whether their cases notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Mutant:
    """A rule that is wrong, and what was changed in it."""

    what: str
    rule: JsonObject


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PASSED_OVER = rf'\{{(?:{_QUOTED}|[^"}}])*\}}|{_QUOTED}'
"""Label matchers and texts."""

_TOKEN = re.compile(
    rf"{_PASSED_OVER}"
    r"|(?P<range>\[\w+\])"
    r"|(?P<offset>offset \w+)"
    r"|(?P<comparison>[<>]=?|[=!]=)"
    r"|(?P<set>\b(?:and|or|unless)\b)"
    r"|(?P<function>\b(?:abs|(?:last|max|min)_over_time)\b)"
    r"|(?P<arithmetic> [-+*/] )"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]))"
)
_INSTEAD = {
    ">": ("<", ">="),
    ">=": ("<", ">"),
    "<": (">", "<="),
    "<=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "and": ("or", "unless"),
    "or": ("and",),
    "unless": ("and",),
    "abs": ("",),
    "last_over_time": ("max_over_time", "min_over_time"),
    "max_over_time": ("min_over_time",),
    "min_over_time": ("max_over_time",),
    " - ": (" + ",),
    " + ": (" - ",),
    " * ": (" / ",),
    " / ": (" * ",),
}
_FACTORS = (0.5, 1.01, 2)


def of(rule: JsonObject) -> Iterator[Mutant]:
    """Each comparison, word, number and time changed, and each condition, exception and time left out."""
    expression = rule["expr"]
    for found in _TOKEN.finditer(expression):
        for instead in _instead(found):
            yield _changed(rule, found.start(), found.end(), instead)
        if found.lastgroup == "set":
            yield _changed(rule, found.start(), _operand_end(found), "")
    for key in sorted(rule.keys() & {"for", "keep_firing_for"}):
        yield Mutant(f"without {key}", {name: value for name, value in rule.items() if name != key})
        yield Mutant(f"twice as long {key}", {**rule, key: _twice(rule[key])})


def _instead(found: re.Match[str]) -> tuple[str, ...]:
    text = found[0]
    match found.lastgroup:
        case "number":
            value = float(text)
            return tuple(f"{value * factor:.6g}" for factor in _FACTORS) if value else ("0.01",)
        case "range":
            return ("[20s]", f"[{_twice(text[1:-1])}]")
        case "offset":
            return ("", "offset 20s", f"offset {_twice(text.removeprefix('offset '))}")
    return _INSTEAD.get(text, ())


_BOUNDARY = re.compile(rf"{_PASSED_OVER}|[(),]|\b(?:and|or|unless)\b")
_ENDS = {"or": {"or"}, "and": {"or", "and", "unless"}, "unless": {"or", "and", "unless"}}
"""Words that end the right side of a word: `or` binds less than the others, which bind from the left."""


def _operand_end(word: re.Match[str]) -> int:
    """Where the right side of `and`, `or` or `unless` ends."""
    depth = 0
    for found in _BOUNDARY.finditer(word.string, word.end()):
        text = found[0]
        if depth == 0 and (text in {")", ","} or text in _ENDS[word[0]]):
            return found.start()
        depth += {"(": 1, ")": -1}.get(text, 0)
    return len(word.string)


def _changed(rule: JsonObject, start: int, end: int, instead: str) -> Mutant:
    expression = rule["expr"]
    before = expression[:start].rsplit("\n", maxsplit=1)[-1].strip()[-50:]
    after = expression[end:].split("\n", maxsplit=1)[0].strip()[:50]
    old = " ".join(expression[start:end].split())[:70]
    what = f"{before} [{old}] {after} -> {instead.strip()}"
    return Mutant(what, {**rule, "expr": expression[:start] + instead + expression[end:]})


def _twice(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)(\w+)", duration).groups()  # type: ignore[union-attr]
    return f"{2 * int(number)}{unit}"

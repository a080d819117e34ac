"""Rules with one thing wrong, to see whether their cases notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwatch.rules.messages import LIMIT

JsonObject = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Mutant:
    """A rule that is wrong itself or in a ``limit`` with which it compares, and what was changed in it."""

    what: str
    rule: JsonObject
    limit: JsonObject | None = None

    def named(self, name: str) -> list[JsonObject]:
        """The rule by another name, and the wrong limit under that."""
        if not self.limit:
            return [{**self.rule, "alert": name}]
        labels = ",".join(f'{key}="{self.limit["labels"][key]}"' for key in ("alert", "severity", "condition"))
        expr = self.rule["expr"].replace(f"{LIMIT}{{{labels}}}", f"{name}{{{labels}}}")
        return [{**self.limit, "record": name}, {**self.rule, "alert": name, "expr": expr}]


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PASSED_OVER = rf'\{{(?:{_QUOTED}|[^"}}])*\}}|{_QUOTED}| \+ 0 \* '
"""Label matchers, texts, and what gives a number the labels of a series."""

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


def of(*limits: JsonObject, rule: JsonObject) -> Iterator[Mutant]:
    """Each comparison, word, number and time changed, and each condition, exception and time left out."""
    for what, expression in _changes(rule["expr"]):
        yield Mutant(what, {**rule, "expr": expression})
    for limit in limits:
        for what, expression in _changes(limit["expr"]):
            yield Mutant(f"limit {what}", rule, {**limit, "expr": expression})
    for key in sorted(rule.keys() & {"for", "keep_firing_for"}):
        yield Mutant(f"without {key}", {name: value for name, value in rule.items() if name != key})
        yield Mutant(f"twice as long {key}", {**rule, key: _twice(rule[key])})


def _changes(expression: str) -> Iterator[tuple[str, str]]:
    """Yield what is changed, and the whole with it."""
    for found in _TOKEN.finditer(expression):
        changes = [(found.end(), instead) for instead in _instead(found)]
        if found.lastgroup == "set":
            changes.append((_operand_end(found), ""))
        for end, instead in changes:
            before = expression[: found.start()].rsplit("\n", maxsplit=1)[-1].strip()[-50:]
            after = expression[end:].split("\n", maxsplit=1)[0].strip()[:50]
            old = " ".join(expression[found.start() : end].split())[:70]
            what = f"{before} [{old}] {after} -> {instead.strip()}"
            yield what, expression[: found.start()] + instead + expression[end:]


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


def _twice(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)(\w+)", duration).groups()  # type: ignore[union-attr]
    return f"{2 * int(number)}{unit}"

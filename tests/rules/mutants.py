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
        labels = ",".join(
            f'{key}="{self.limit["labels"][key]}"' for key in ("alert", "severity", "condition")
        )
        expr = self.rule["expr"].replace(f"{LIMIT}{{{labels}}}", f"{name}{{{labels}}}")
        return [{**self.limit, "record": name}, {**self.rule, "alert": name, "expr": expr}]


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PASSED_OVER = rf'\{{(?:{_QUOTED}|[^"}}])*\}}|{_QUOTED}'
"""Label matchers and texts."""

_TOKEN = re.compile(
    rf"{_PASSED_OVER}"
    r"|\("
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
        number, *labels = re.split(r"(?= \+ 0 \* )", limit["expr"], maxsplit=1)
        for what, changed in _changes(number):
            yield Mutant(f"limit {what}", rule, {**limit, "expr": "".join((changed, *labels))})
    for key in sorted(rule.keys() & {"for", "keep_firing_for"}):
        yield Mutant(f"without {key}", {name: value for name, value in rule.items() if name != key})
        yield Mutant(f"twice as long {key}", {**rule, key: _twice(rule[key])})


def _changes(expression: str) -> Iterator[tuple[str, str]]:
    """Yield what is changed, and the whole with it; what `largest` writes several times is changed in all."""
    end = 0
    for found in _TOKEN.finditer(expression):
        if found.start() < end:
            continue
        if found[0] == "(" and (operands := _compared(inside := expression[found.end() : _end(found)])):
            end = found.end() + len(inside)
            for each in operands:
                for what, changed in _changes(each):
                    yield what, expression[: found.end()] + inside.replace(each, changed) + expression[end:]
            continue
        changes = [(found.end(), instead) for instead in _instead(found)]
        if found.lastgroup == "set":
            changes.append((_end(found, *_ENDS[found[0]]), ""))
        for last, instead in changes:
            cut = (expression[: found.start()], expression[found.start() : last], expression[last:])
            before, old, after = (re.sub(r"(?<=\() | (?=\))", "", " ".join(each.split())) for each in cut)
            yield (
                f"{before[-60:]} [{old[:70]}] {after[:60]} -> {instead.strip()}",
                expression[: found.start()] + instead + expression[last:],
            )


def _compared(inside: str) -> list[str]:
    """The operands of `largest` or `smallest`, if that is inside brackets: each is compared with all."""
    every = [_split(each, r"[<>]=?") for each in _split(inside, r"\bor\b")]
    operands = [each[0] for each in every]
    several = len(operands) > 1 and all(sorted(each) == sorted(operands) for each in every)
    return operands if several else []


def _split(text: str, at: str) -> list[str]:
    """Split PromQL at what is outside of brackets."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(rf"{_PASSED_OVER}|[()]|(?P<at>{at})", text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found["at"] and not depth:
            parts.append(text[begin : found.start()].strip())
            begin = found.end()
    return [*parts, text[begin:].strip()]


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


def _end(found: re.Match[str], *words: str) -> int:
    """Where what begins behind a bracket ends, or the right side of a word, that ends at any of these."""
    depth = 0
    for each in _BOUNDARY.finditer(found.string, found.end()):
        if depth == 0 and (each[0] in words or each[0] == ")" or (words and each[0] == ",")):
            return each.start()
        depth += {"(": 1, ")": -1}.get(each[0], 0)
    return len(found.string)


def _twice(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)(\w+)", duration).groups()  # type: ignore[union-attr]
    return f"{2 * int(number)}{unit}"

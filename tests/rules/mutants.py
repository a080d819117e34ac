"""Rules with one thing wrong, to see whether their cases notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

JsonObject = dict[str, Any]

_TOKEN = re.compile(
    r'"[^"]*"'  # label values: passed over
    r"|(?P<range>\[\w+\])"
    r"|(?P<offset>offset \w+)"
    r"|(?P<comparison>[<>]=?|==)(?!~)"
    r"|(?P<word>\b(?:and|or|unless|abs|last_over_time)\b)"
    r"|(?P<minus> - )"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)?(?![\w.]))"
)
_INSTEAD = {
    ">": (">=",),
    ">=": (">",),
    "<": ("<=",),
    "<=": ("<",),
    "==": ("!=",),
    "and": ("or", "unless"),
    "or": ("and",),
    "unless": ("and",),
    "abs": ("",),
    "last_over_time": ("max_over_time", "min_over_time"),
    " - ": (" + ",),
}


def of(rule: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """What was changed, and the changed rule: each comparison, word, number and time in turn, a little."""
    expression = rule["expr"]
    for found in _TOKEN.finditer(expression):
        for instead in _instead(found):
            changed = expression[: found.start()] + instead + expression[found.end() :]
            yield f"{_place(expression, found)} -> {instead.strip()}", {**rule, "expr": changed}
    for key in rule.keys() & {"for", "keep_firing_for"}:
        yield f"without {key}", {name: value for name, value in rule.items() if name != key}
        yield f"twice as long {key}", {**rule, key: _twice(rule[key])}


def _instead(found: re.Match[str]) -> tuple[str, ...]:
    text = found[0]
    match found.lastgroup:
        case "number":
            value = float(text)
            return (f"{value * 1.01:.6g}" if value else "0.01",)
        case "range":
            return ("[20s]", f"[{_twice(text[1:-1])}]")
        case "offset":
            return ("", "offset 20s", f"offset {_twice(text.removeprefix('offset '))}")
    return _INSTEAD.get(text, ())


def _place(expression: str, found: re.Match[str]) -> str:
    """The changed word with what stands around it, in one line."""
    before = expression[: found.start()].rsplit("\n", maxsplit=1)[-1].strip()[-50:]
    after = expression[found.end() :].split("\n", maxsplit=1)[0].strip()[:50]
    return f"{before} [{found[0].strip()}] {after}"


def _twice(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)(\w+)", duration).groups()  # type: ignore[union-attr]
    return f"{2 * int(number)}{unit}"

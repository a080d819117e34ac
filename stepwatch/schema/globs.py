"""Shell patterns for run names, as regular expressions that Prometheus and Alertmanager read.

Both anchor every matcher at both ends, so the text carries no anchors. It holds no backslash and no
double quote either, and so stands in a quoted matcher as it is: `run=~"ppo/gsm8k[.]v2.*"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_IN_SET = r"[A-Za-z0-9_./:@+=, ]"
_TOKEN = re.compile(
    rf"(?P<set>\[!?-?(?:{_IN_SET}(?:-{_IN_SET})?)+-?\])|(?P<wild>[*?])|(?P<plain>[^\[\]\"\\^\x00-\x1f])"
)
_RANGE = re.compile(rf"({_IN_SET})-({_IN_SET})")
_WILD = {"*": ".*", "?": "."}
_SPECIAL = frozenset(".+*?()|{}$")


@cache
def to_re2(glob: str) -> str:
    """Return a shell pattern (`*`, `?`, `[ab]`, `[!ab]`) as an RE2 expression.

    Raises:
        ValueError: The pattern holds a character or a set of characters that cannot be written so.
    """
    expression, end = "", 0
    while end < len(glob):
        token = _TOKEN.match(glob, end)
        if not token:
            raise ValueError(f"the pattern is not understood from {glob[end:]!r} on")
        expression += _expression(token)
        end = token.end()
    return expression


def _expression(token: re.Match[str]) -> str:
    text = token[0]
    if token["set"]:
        _check_ranges(text)
        return text.replace("[!", "[^", 1)
    if token["wild"]:
        return _WILD[text]
    return f"[{text}]" if text in _SPECIAL else text


def _check_ranges(text: str) -> None:
    for first, last in _RANGE.findall(text):
        if first > last:
            raise ValueError(f"the pattern has a range that holds nothing, {first}-{last}")


def fits(glob: str, name: str) -> bool:
    """Return whether a shell pattern fits a whole name, as it does in a matcher."""
    return re.fullmatch(to_re2(glob), name, re.DOTALL) is not None


def alternation(globs: Iterable[str]) -> str:
    """Return one RE2 expression that matches what any of the shell patterns matches.

    No pattern at all gives the empty expression, which matches only a series without the label.
    """
    return "|".join(map(to_re2, globs))

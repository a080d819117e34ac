"""What a word without quotes means: text, number, switch or nothing, and where YAML 1.1 would surprise.

YAML 1.1 reads `on` as true, `22:22` as 1342 and `0777` as 511; YAML 1.2 does not, and people
expect either. Such words are refused, so that no one's reading is silently the wrong one.
"""

from __future__ import annotations

import math
import re

from stepwatch.schema.errors import Fault

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

"""Types of the names in config.yaml: jobs, receivers, labels, and patterns of run names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any

from stepwatch.schema.errors import Fault
from stepwatch.schema.section import Checked

OWN_JOBS = ("runs", "rollouts", "gpu", "node", "prometheus", "alertmanager", "docker")
OWN_LABELS = ("run", "job", "instance", "role", "severity", "topic")

# Shell patterns of run names become regular expressions that Prometheus and Alertmanager read. Both anchor
# every matcher at both ends, so the text carries no anchors. It holds no backslash and no double quote, so it
# fits in a quoted matcher unchanged: run=~"ppo/gsm8k[.]v2.*".

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
            raise ValueError(f"the pattern is invalid from {glob[end:]!r} on")
        text, end = token[0], token.end()
        if token["set"]:
            for first, last in _RANGE.findall(text):
                if first > last:
                    raise ValueError(f"the pattern has an empty range, {first}-{last}")
            expression += text.replace("[!", "[^", 1)
        elif token["wild"]:
            expression += _WILD[text]
        else:
            expression += f"[{text}]" if text in _SPECIAL else text
    return expression


def fits(glob: str, name: str) -> bool:
    """Return whether a shell pattern fits a whole name, as it does in a matcher."""
    return re.fullmatch(to_re2(glob), name, re.DOTALL) is not None


def alternation(globs: Iterable[str]) -> str:
    """Return one RE2 expression that matches what any of the shell patterns matches.

    No pattern at all gives the empty expression, which matches only a series without the label.
    """
    return "|".join(map(to_re2, globs))


_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[^\W_][\w .:/@+-]{0,99}(?<! )")


def _name(value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise Fault(
        "is not a valid name",
        expected="up to 100 letters, digits and any of _ . : / @ + -, starting with a letter or digit",
        fix="rename it, or quote it if it is a number",
    )


def _job(value: Any) -> str:
    name = _name(value)
    if name in OWN_JOBS:
        raise Fault(
            "is a job of Stepwatch itself",
            expected=f"any name but {', '.join(OWN_JOBS)}",
            fix="choose another name",
        )
    return name


def _label(value: Any) -> str:
    expected = "a letter or _, then letters, digits and _"
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise Fault("is not a Prometheus label name", expected=expected, fix="rename the label")
    if value.startswith("__"):
        raise Fault("is reserved by Prometheus", expected="a name without leading __", fix="rename the label")
    if value in OWN_LABELS:
        raise Fault(
            "is a label that Stepwatch sets itself",
            expected=f"any name but {', '.join(OWN_LABELS)}",
            fix="use role: for the role, another name for the rest",
        )
    return value


def _label_value(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise Fault("is not a string", expected="a text that is not empty", fix="quote it")


def _glob(value: Any) -> str:
    expected = "a pattern of run names such as ppo/* or sft-[0-9]"
    if not isinstance(value, str) or not value:
        raise Fault("is not a pattern", expected=expected, fix="write a text, quoted if it starts with *")
    try:
        to_re2(value)
    except ValueError as error:
        raise Fault(
            f"is not a pattern ({error})", expected=expected, fix="use ? for this character"
        ) from error
    return value


JobName = Annotated[str, Checked(_job)]
ReceiverName = Annotated[str, Checked(_name)]
LabelName = Annotated[str, Checked(_label)]
LabelValue = Annotated[str, Checked(_label_value)]
RunGlob = Annotated[str, Checked(_glob)]

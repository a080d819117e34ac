"""What PromQL reads: its selectors, by their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tests.rules.series import Series

_TEXT = r'(?:"(?:[^"\\]|\\.)*"|`[^`]*`|\'[^\']*\')'
_NO_METRIC = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\[[^\]]*\]|offset -?\w+"
_SELECTOR = re.compile(
    rf"{_NO_METRIC}|\b(?:and|or|unless|bool|NaN|Inf)\b"
    rf'|(?P<name>(?<![\w.])[a-zA-Z_:][\w:]*)?\{{(?P<inside>(?:{_TEXT}|[^"`}}])*)\}}'
    rf"|(?P<bare>(?<![\w.])[a-zA-Z_:][\w:]*)\b(?!\s*\(|\s+(?:by|without)\b)|{_TEXT}"
)
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_TEXT})")
_ASKED = re.compile(
    r'query \(printf "([^"]+)"|printf "([^"]+)" \$r\|query|printf `([^`]+)` (?:\.|\$r)\|query|query `([^`]+)`'
)


class Selector(NamedTuple):
    """What selects series: a metric's name, empty where a matcher says it, and label, operator and value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    @property
    def series(self) -> Series:
        """The series that are asked for by equality, whatever the run."""
        equal = ((name, value) for name, operator, value in self.matchers if operator == "=")
        return Series(self.name, tuple(each for each in equal if each[0] not in ("cluster", "run")))


def selectors(promql: str) -> list[Selector]:
    """Every selector in PromQL; Grafana's variables are read as any value."""
    filled = re.sub(r"\$\{\w+:doublequote\}", '"any"', promql)
    return [
        Selector(
            found["name"] or found["bare"] or "",
            tuple((label, sign, text[1:-1]) for label, sign, text in _MATCHER.findall(found["inside"] or "")),
        )
        for found in _SELECTOR.finditer(filled)
        if found["bare"] or found["inside"] is not None
    ]


def asked(annotation: str) -> list[str]:
    """The PromQL that an annotation asks for, about a run or GPU named `any`."""
    found = ("".join(query) for query in _ASKED.findall(annotation))
    filled = (re.sub(r"%(?:\[\d\])?q", '"any"', query) for query in found)
    return [re.sub(r"%(?:\[\d\])?s", 'run="any"', query) for query in filled]


def read(texts: Iterable[str], known: Iterable[Series]) -> list[Series]:
    """Which of the known series PromQL reads."""
    wanted = [each.series for text in texts for each in selectors(text)]
    return [
        each
        for each in known
        if any(one.metric == each.metric and set(one.labels) <= set(each.labels) for one in wanted)
    ]

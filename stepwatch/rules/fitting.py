"""Patterns of failure in PromQL: what is recorded about each, and which of them the evidence fits.

Prometheus adds up the signs that are seen as one number, so that the evidence is asked for once: its digits
are 1 for the mark, the share of the signs in percent (3), how many they are (1), the place in the table (2),
and 1 or 0 for each sign, the first at the right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepwatch.languages import Catalogue
from stepwatch.rules.messages import Entry
from stepwatch.rules.patterns import Pattern

TEXT_INFO = "pattern_text_info"
"""The runbook's texts of a pattern and the names of its signs, as labels; always 1."""

SIGN = "pattern_sign"
"""What an alert or a move of a signal (``evidence``) adds to the number of a pattern."""

MOST_SIGNS = 6
SHOWN = 2
"""How many patterns are shown, of those that fit best."""

_PLACE = 10**MOST_SIGNS
_COUNT = 100 * _PLACE
_SHARE = 10 * _COUNT
_MARK = 1000 * _SHARE
_AGAINST = -10 * _MARK
_LEAST = _MARK + 30 * _SHARE
"""More than the mark alone, which is at most a quarter of the signs."""
_SIGNS = [f"sign_{number}" for number in range(1, MOST_SIGNS + 1)]


def recorded(
    table: Sequence[Pattern], book: Mapping[str, Entry], translate: Catalogue
) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the texts and signs of patterns; ``book`` has the runbook's entries."""
    for place, pattern in enumerate(table):
        said = pattern.translated(translate)
        texts = {part: translate(text) for part, text in book[pattern.name]._asdict().items()}
        signs = dict(zip(_SIGNS, (sign.text for sign in said.signs), strict=False))
        labels = {"pattern": said.name, "of": str(len(said.signs)), **signs, **texts}
        yield {"record": TEXT_INFO, "expr": "vector(1)", "labels": labels}
        for name, evidence, value in _values(said, place):
            labels = {"pattern": said.name, "sign": name, "evidence": evidence}
            yield {"record": SIGN, "expr": f"vector({value})", "labels": labels}


def _values(pattern: Pattern, place: int) -> Iterator[tuple[str, str, int]]:
    share = 100 // len(pattern.signs)
    for number, sign in enumerate(pattern.signs):
        value = share * _SHARE + _COUNT + 10**number
        if number == 0:
            value += _MARK + (99 - place) * _PLACE
        for evidence in sign.evidence:
            yield str(number + 1), evidence, value
    for evidence in pattern.against:
        yield "against", evidence, _AGAINST


def fitting(evidence: str, otherwise: str) -> str:
    """Return PromQL of the patterns that fit best, with their texts as labels.

    Labels of the answer: ``pattern``, ``signs`` (those seen: ``2/4 · KL rises · reward falls``), ``meaning``,
    ``causes``, ``mitigation``, and ``order``, which is higher for what fits better.

    Args:
        evidence: PromQL of a series with the value 1 for each ``evidence``: the name of an alert that fired,
            or a move such as ``kl up``.
        otherwise: PromQL of the leading alert, as ``alertname``, with the same texts, for where no pattern
            fits: its ``signs`` are ``-``.
    """
    parts = ["pattern", "of", *_SIGNS, *Entry._fields]
    adding = f"max by (pattern, sign, evidence) ({SIGN}) * on (evidence) group_left () ({evidence})"
    fit = f"sum by (pattern) (max by (pattern, sign) ({adding})) > {_LEAST}"
    best = f'count_values by (pattern) ("order", topk({SHOWN}, {fit}))'
    texts = f"max by ({', '.join(parts)}) ({TEXT_INFO})"
    found = f"({best}) * on (pattern) group_left ({', '.join(parts[1:])}) {texts}"
    for number, sign in enumerate(_SIGNS):
        found = f'label_replace({found}, "{sign}", "", "order", ".*0.{{{number}}}")'
    for sign in _SIGNS:
        found = f'label_replace({found}, "{sign}", " · $1", "{sign}", "(.+)")'
    found = f'label_replace({found}, "count", "$1/", "order", "1...(.).*")'
    found = f'label_join({found}, "signs", "", "count", "of", {", ".join(map(json.dumps, _SIGNS))})'
    shown = f"group by (pattern, signs, order, {', '.join(Entry._fields)})"
    alert = f'label_replace({otherwise}, "pattern", "$1", "alertname", "(.+)")'
    other = f'label_replace({alert}, "signs", "-", "", "")'
    return f"{shown} ({found}) or on () {shown} ({other})"

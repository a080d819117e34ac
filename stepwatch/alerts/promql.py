"""PromQL of the table of alerts: text in which limits (``$stddevs``) and calls of macros are expanded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import jinja2

from exporter.alert_labels import ABOUT
from stepwatch.alerts import identity
from stepwatch.schema.scalars import Duration

Limits = Callable[[str], str]
"""Gives the PromQL of a limit by its key within the block of its alert: ``warning.stddevs``."""

_LIMIT = re.compile(r"(\[)?\$([a-z_]\w*(?:\.\w+)*)")
_CALL = re.compile(r"\b([a-z]\w*)\(")
_METRIC = re.compile(r"\b((?:rl|gpu)_\w+)(?:\{((?:\"[^\"]*\"|[^}])*)\})?")
_QUOTED = re.compile(r'"[^"]*"')
_JOINED_BEFORE, _JOINED_AFTER = (
    re.compile(r"(?:^|[(,]|\b(?:and|or|unless))$"),
    re.compile(r"$|[),]|(?:and|or|unless)\b"),
)
_NUMBER = re.compile(r"[0-9.e+-]+")

OR, JOIN, COMPARISON, SUM = 1, 2, 3, 4
"""How strongly ``or``, ``and``, ``>`` and ``+`` bind, as ``rank`` counts."""
_OPERATORS = (r"\bor\b", r"\b(?:and|unless)\b", r"[=!<>]=|[<>]", r"(?<=[\w)}\]] )[+-] ", r" [*/] ")


FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        abs absent absent_over_time acos acosh and asin asinh atan atanh avg avg_over_time bool bottomk by
        ceil changes clamp clamp_max clamp_min cos cosh count count_over_time count_values day_of_month
        day_of_week day_of_year days_in_month deg delta deriv double_exponential_smoothing exp
        first_over_time floor group group_left group_right histogram_avg histogram_count
        histogram_fraction histogram_quantile histogram_stddev histogram_stdvar histogram_sum holt_winters
        hour idelta ignoring increase info irate label_join label_replace last_over_time limit_ratio
        limitk ln log10 log2 mad_over_time max max_over_time min min_over_time minute month on or pi
        predict_linear present_over_time quantile quantile_over_time rad rate resets round scalar sgn sin
        sinh sort sort_by_label sort_by_label_desc sort_desc sqrt stddev stddev_over_time stdvar
        stdvar_over_time sum sum_over_time tan tanh time timestamp topk ts_of_first_over_time
        ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time unless vector without year
        """,
    )
)
"""What stands before a bracket in PromQL, as of Prometheus 2.42 to 3.13."""


def unknown_calls(text: str) -> list[str]:
    """Return the calls of a text that are neither of macros nor of functions of PromQL."""
    called = dict.fromkeys(found[1] for found in _CALL.finditer(_QUOTED.sub('""', text)))
    return [name for name in called if name not in FUNCTIONS and name not in _macros()]


def macro_names() -> tuple[str, ...]:
    """Return the names of all macros."""
    return tuple(_macros())


def keys(*texts: str) -> frozenset[str]:
    """Return the limits that texts name, by key."""
    return frozenset(found[2] for text in texts for found in _LIMIT.finditer(text))


def qualified(text: str, own: frozenset[str], level: str) -> str:
    """Return a text in which the limits of a level are named with it: ``$warning.stddevs``."""
    return _LIMIT.sub(
        lambda found: f"{found[1] or ''}${level}.{found[2]}" if found[2] in own else found[0], text
    )


def expand(text: str, limit: Limits) -> str:
    """Return PromQL with its limits in place: a number, or PromQL; behind a bracket a duration."""

    def written(found: re.Match[str]) -> str:
        value = limit(found[2])
        return f"[{Duration(round(1000 * float(value)))}" if found[1] else value

    return _called(_LIMIT.sub(written, text))


def of(text: str, matcher: str) -> str:
    """Return expanded PromQL for the runs, or the GPUs, that a matcher selects; all if it is empty."""
    if not matcher:
        return text

    def select(found: re.Match[str]) -> str:
        return f"{found[1]}{{{','.join(filter(None, (found[2], matcher)))}}}"

    return _METRIC.sub(select, text)


def signals(text: str) -> frozenset[str]:
    """Return the signals whose statistics PromQL reads, and other metrics by their names without ``rl_``."""
    return frozenset(
        signal[1]
        if (signal := re.search(r'(?:signal|key)="([^"]*)"', found[2] or ""))
        else found[1].removeprefix("rl_")
        for found in _METRIC.finditer(text)
    )


def metrics(text: str) -> frozenset[str]:
    """Return the metrics of runs and GPUs that PromQL reads."""
    return frozenset(found[1] for found in _METRIC.finditer(text))


def rank(text: str) -> int:
    """Return how strongly the loosest operator outside of brackets binds: 1 for ``or``, 9 for none."""
    outside, depth = "", 0
    for character in _QUOTED.sub("", text):
        depth -= character in ")}]"
        outside += "" if depth else character
        depth += character in "({["
    return next((rank for rank, found in enumerate(_OPERATORS, 1) if re.search(found, outside)), 9)


def bracketed(text: str, loosest: int = 0) -> str:
    """Return PromQL in brackets, unless its operators bind more strongly than ``loosest``."""
    if loosest and rank(text) > loosest:
        return text
    return "(\n  " + text.replace("\n", "\n  ") + "\n)" if "\n" in text else f"({text})"


def compared(value: str, operator: str, limit: str) -> str:
    """Return the comparison of a value with a limit."""
    return f"{bracketed(value, COMPARISON)} {operator} {bracketed(limit, COMPARISON)}"


def joined(operator: str, *texts: str) -> str:
    """Return texts that are joined by ``or``, ``and`` or ``unless``; ``on (...) (...)`` may be behind it."""
    first, *more = texts
    own = OR if operator == "or" else JOIN
    left = first if own == OR else bracketed(first, OR)
    return "".join((left, *(f"\n{operator} {bracketed(text, own)}" for text in more)))


def is_number(text: str) -> bool:
    """Return whether PromQL is a constant."""
    return _NUMBER.fullmatch(text) is not None


def number(value: float) -> str:
    """Return a number as short as it can be written: 1, 0.5, 2.5."""
    return repr(float(value)).removesuffix(".0")


def _called(text: str) -> str:
    made, end, start = "", 0, 0
    while found := _CALL.search(text, start):
        start = found.end()
        if not (macro := _macros().get(found[1])):
            continue
        arguments, close = _arguments(text, start)
        result = macro(*map(_called, arguments))
        before, after = text[: found.start()].rstrip(), text[close:].lstrip()
        edges = before[-1:] in ("", "(", ",") and after[:1] in ("", ")", ",")
        joined_only = _JOINED_BEFORE.search(before) and _JOINED_AFTER.match(after)
        loosest = 0 if edges else JOIN if joined_only else SUM
        made += text[end : found.start()] + (bracketed(result, loosest) if loosest else result)
        end = start = close
    return made + text[end:]


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments of a call that begin at an index, and where the call ends."""
    depth, quoted, commas = 1, False, [start - 1]
    for index in range(start, len(text)):
        character = text[index]
        quoted ^= character == '"'
        depth += 0 if quoted else (character in "({[") - (character in ")}]")
        if not depth:
            arguments = [text[a + 1 : b].strip() for a, b in pairwise([*commas, index])]
            return [each for each in arguments if each], index + 1
        if character == "," and depth == 1 and not quoted:
            commas.append(index)
    raise ValueError(f"{text[start:]}: no closing bracket")


@cache
def _macros() -> Mapping[str, Callable[..., str]]:
    jinja = jinja2.Environment(  # noqa: S701  (PromQL, not HTML)
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined
    )
    labels = {name: identity.written(labels) for name, labels in identity.SUBJECTS.items()}
    module = (
        jinja.get_template("macros.j2")
        .make_module({"labels": labels, "about": ABOUT, "real_disks": identity.REAL_DISKS})
        .__dict__
    )
    by = {f"by_{name}": _by(text) for name, text in labels.items()}
    own = {name: macro for name, macro in module.items() if not name.startswith("_")}
    return {**by, **own, "largest": largest, "smallest": smallest, "one_of": one_of, "raw": raw}


def _by(labels: str) -> Callable[[str], str]:
    return lambda inner: f"max by ({labels}) {bracketed(inner)}"


def largest(*operands: str) -> str:
    """Return the largest of them; unlike ``max``, nothing where one is missing or NaN."""
    return _extreme(operands, ">", "clamp_min", max)


def smallest(*operands: str) -> str:
    """Return the smallest of them; unlike ``min``, nothing where one is missing or NaN."""
    return _extreme(operands, "<", "clamp_max", min)


def _extreme(
    operands: Sequence[str], beyond: str, clamp: str, constant: Callable[[Iterator[float]], float]
) -> str:
    numbers = [each for each in operands if is_number(each)]
    vectors = [each for each in operands if each not in numbers]
    if not vectors:
        return number(constant(map(float, numbers)))
    found = vectors[0] if len(vectors) == 1 else _among(vectors, beyond)
    for bound in numbers:
        found = f"{clamp}({found}, {bound})"
    return found


def _among(vectors: Sequence[str], beyond: str) -> str:
    """Each operand is compared with all that follow it, and with all before it that may equal it."""
    alternatives = []
    for index, each in enumerate(vectors):
        held = bracketed(each, COMPARISON)
        for other, rival in enumerate(vectors):
            if other != index:
                held += f" {beyond}{'=' * (other > index)} {bracketed(rival, COMPARISON)}"
        alternatives.append(held)
    return bracketed("\nor ".join(alternatives))


def raw(key: str) -> str:
    """Return the name of a raw key as statistics have it: ``raw("env/score")``."""
    return key.strip('"')


def one_of(operand: str, listed: str = "") -> str:
    """Return an operand where its value is in a list of config.yaml: ``1|2|3``."""
    if not listed:
        return f"{operand} == NaN"  # as no value is
    return "\nor ".join(f"{operand} == {value}" for value in listed.split("|"))

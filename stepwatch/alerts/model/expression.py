"""PromQL as objects: operands are aggregated to the labels of their subject, so plain matching joins them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from textwrap import indent
from typing import Union

from stepwatch.alerts.model.identity import RUN, written
from stepwatch.schema.scalars import Duration

Operand = Union["Expression", float]

_RANKS = {"or": 1, "and": 2, "and on ()": 2, "unless": 2, "==": 3, "!=": 3, "<=": 3, "<": 3, ">=": 3, ">": 3}
_RANKS |= {"+": 4, "-": 4, "*": 5, "/": 5}
_ATOM = 9
_NUMBER = re.compile(r"[0-9.e+-]+")
_LIMIT = re.compile(r"<([\w.]+)>(s?)")


@dataclass(frozen=True)
class Scope:
    """Whose series an expression is rendered for, and what its limits are: PromQL by key within the block."""

    matcher: str = ""
    limit: Callable[[str], str] = lambda key: f"<{key}>"


class Expression(ABC):
    """A PromQL expression that yields a vector or a number."""

    rank = _ATOM

    @abstractmethod
    def promql(self, scope: Scope) -> str:
        """Render it for a scope."""

    @property
    def children(self) -> Iterable[Expression]:
        """The expressions that this one is made of."""
        return ()

    def parts(self) -> Iterator[Expression]:
        """Yield the expression itself and everything below it."""
        yield self
        for each in self.children:
            yield from each.parts()

    def __add__(self, other: Operand) -> Expression:
        return Binary("+", self, of(other))

    def __sub__(self, other: Operand) -> Expression:
        return Binary("-", self, of(other))

    def __mul__(self, other: Operand) -> Expression:
        return Binary("*", self, of(other))

    def __rmul__(self, other: float) -> Expression:
        return Binary("*", of(other), self)

    def __truediv__(self, other: Operand) -> Expression:
        return Binary("/", self, of(other))

    def __gt__(self, other: Operand) -> Binary:
        return Binary(">", self, of(other))

    def __ge__(self, other: Operand) -> Binary:
        return Binary(">=", self, of(other))

    def __lt__(self, other: Operand) -> Binary:
        return Binary("<", self, of(other))

    def __le__(self, other: Operand) -> Binary:
        return Binary("<=", self, of(other))

    def equals(self, other: Operand) -> Binary:
        """Keep the series that have this value."""
        return Binary("==", self, of(other))

    def differs(self, other: Operand) -> Binary:
        """Keep the series that have another value, NaN included."""
        return Binary("!=", self, of(other))

    def __and__(self, other: Expression) -> Expression:
        return Binary("and", self, other)

    def __or__(self, other: Expression) -> Expression:
        return Binary("or", self, other)

    def unless(self, other: Expression) -> Expression:
        """Keep the series that the other has not."""
        return Binary("unless", self, other)

    def while_(self, other: Expression) -> Expression:
        """Keep the series while the other has any, whatever their labels."""
        return Binary("and on ()", self, other)


@dataclass(frozen=True, eq=False)
class Number(Expression):
    """A constant."""

    value: float

    def promql(self, scope: Scope) -> str:  # noqa: ARG002
        return number(self.value)


@dataclass(frozen=True, eq=False)
class Limit(Expression):
    """A limit of config.yaml, by its key within the block of its alert: ``warning.stddevs``."""

    key: str

    def promql(self, scope: Scope) -> str:
        return scope.limit(self.key)


@dataclass(frozen=True, eq=False)
class Series(Expression):
    """The series of a metric, one for each subject; ``over`` is a function and the range that it is over."""

    metric: str
    labels: Mapping[str, str] = field(default_factory=dict)
    over: tuple[str, str] | None = None
    by: str = written(RUN)

    def promql(self, scope: Scope) -> str:
        inside = [f'{name}="{value}"' for name, value in self.labels.items()]
        matchers = ",".join(filter(None, [*inside, scope.matcher if self.by else ""]))
        selector = f"{self.metric}{{{matchers}}}" if matchers else self.metric
        if self.over:
            function, span = self.over
            selector = f"{function}({selector}[{span}])"
        return f"max by ({self.by}) ({selector})" if self.by else f"max({selector})"


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function of a vector: ``abs``, ``clamp_min``."""

    function: str
    arguments: tuple[Expression, ...]

    def promql(self, scope: Scope) -> str:
        return f"{self.function}({', '.join(each.promql(scope) for each in self.arguments)})"

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True, eq=False)
class Binary(Expression):
    """Two expressions with an operator between them."""

    operator: str
    left: Expression
    right: Expression

    @property
    def rank(self) -> int:  # type: ignore[override]
        """How strongly the operator binds."""
        return _RANKS[self.operator]

    def promql(self, scope: Scope) -> str:
        left, right = self._side(self.left, scope), self._side(self.right, scope, right=True)
        if self.rank < _RANKS["=="]:
            return f"{left}\n{self.operator} {right}"
        return f"{left} {self.operator} {right}"

    def _side(self, side: Expression, scope: Scope, *, right: bool = False) -> str:
        text = side.promql(scope)
        if side.rank > self.rank or (side.rank == self.rank and not right):
            return text
        return bracketed(text)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.left, self.right


@dataclass(frozen=True, eq=False)
class Extreme(Expression):
    """The largest or smallest of several; unlike ``max`` and ``min``, nothing where one is missing or NaN."""

    operands: tuple[Expression, ...]
    largest: bool

    def promql(self, scope: Scope) -> str:
        texts = [each.promql(scope) for each in self.operands]
        numbers = list(filter(is_number, texts))
        vectors = [each for each, text in zip(self.operands, texts, strict=True) if text not in numbers]
        if not vectors:
            return number((max if self.largest else min)(map(float, numbers)))
        found = vectors[0].promql(scope) if len(vectors) == 1 else self._among(vectors, scope)
        for bound in numbers:
            found = f"clamp_{'min' if self.largest else 'max'}({found}, {bound})"
        return found

    def _among(self, vectors: Sequence[Expression], scope: Scope) -> str:
        """Each operand is compared with all that follow it, and with all before it that may equal it."""
        beyond = ">" if self.largest else "<"
        alternatives: list[Expression] = []
        for index, each in enumerate(vectors):
            held: Expression = each
            for other, rival in enumerate(vectors):
                if other != index:
                    held = Binary(f"{beyond}=" if other > index else beyond, held, rival)
            alternatives.append(held)
        return bracketed(any_of(alternatives).promql(scope))

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.operands


@dataclass(frozen=True, eq=False)
class Formula(Expression):
    """PromQL as text, with limits by their keys in angle brackets: ``max_over_time(up[<within>s])``."""

    text: str

    def promql(self, scope: Scope) -> str:
        def limit(match: re.Match[str]) -> str:
            text = scope.limit(match[1])
            if match[2] and is_number(text):
                return str(Duration(round(1000 * float(text))))
            return text + match[2]

        return _LIMIT.sub(limit, self.text)

    @property
    def children(self) -> list[Expression]:
        return [Limit(match[1]) for match in _LIMIT.finditer(self.text)]


@dataclass(frozen=True, eq=False)
class On(Expression):
    """The right side of ``and`` or ``unless`` that is matched on some labels only."""

    labels: str
    inside: Expression

    def promql(self, scope: Scope) -> str:
        return f"on ({self.labels}) {bracketed(self.inside.promql(scope))}"

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.inside,)


@dataclass(frozen=True, eq=False)
class OneOf(Expression):
    """The series of an operand whose value is in a list of config.yaml."""

    operand: Expression
    key: str

    rank = 1  # as that of `or`

    def promql(self, scope: Scope) -> str:
        operand, listed = self.operand.promql(scope), scope.limit(self.key)
        if not listed:
            return f"{operand} == NaN"  # as no value is
        return "\nor ".join(f"{operand} == {value}" for value in listed.split("|"))

    @property
    def children(self) -> tuple[Expression, ...]:
        return Limit(self.key), self.operand


def of(operand: Operand) -> Expression:
    """Return an expression for a number, or the expression itself."""
    return operand if isinstance(operand, Expression) else Number(operand)


def is_number(text: str) -> bool:
    """Return whether PromQL is a constant."""
    return _NUMBER.fullmatch(text) is not None


def number(value: float) -> str:
    """Return a number as short as it can be written: 1, 0.5, 2.5."""
    return repr(float(value)).removesuffix(".0")


def bracketed(text: str) -> str:
    """Return PromQL in brackets; what takes several lines is indented between them."""
    return f"(\n{indent(text, '  ')}\n)" if "\n" in text else f"({text})"


def size(expression: Expression) -> Expression:
    """Return its absolute value."""
    return Call("abs", (expression,))


def larger(*operands: Operand) -> Expression:
    """Return the largest of them."""
    return Extreme(tuple(map(of, operands)), largest=True)


def smaller(*operands: Operand) -> Expression:
    """Return the smallest of them."""
    return Extreme(tuple(map(of, operands)), largest=False)


def any_of(conditions: Iterable[Expression]) -> Expression:
    """Join conditions by ``or``."""
    return reduce(Expression.__or__, conditions)


def all_of(conditions: Iterable[Expression]) -> Expression:
    """Join conditions by ``and``."""
    return reduce(Expression.__and__, conditions)

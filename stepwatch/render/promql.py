"""What the templates of dashboards ask about runs: operands that are aggregated as those of the rules are."""

from __future__ import annotations

from dataclasses import dataclass

from stepwatch.alerts.model.expression import Expression, Scope, Series


@dataclass(frozen=True)
class Operands:
    """Operands about the runs that ``matcher`` selects."""

    matcher: str = ""

    def metric(self, name: str, **labels: str) -> str:
        """Return a metric of the runs, with these labels."""
        return Series(name, labels).promql(Scope(self.matcher))

    def of(self, statistic: str, signal: str, **labels: str) -> str:
        """Return a statistic of a signal: ewma, best."""
        return self.metric(f"rl_{statistic}", signal=signal, **labels)

    def promql(self, expression: Expression) -> str:
        """Return an expression of the table of alerts for them."""
        return expression.promql(Scope(self.matcher))

    def selector(self, name: str) -> str:
        """Return the bare selector."""
        return f"{name}{{{self.matcher}}}" if self.matcher else name

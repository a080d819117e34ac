"""What an alert is: one entry, from which its rules, messages, limit lines and documents follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from stepwatch.alerts.model.expression import Binary, Expression, Extreme, Formula, Limit, Series, all_of
from stepwatch.schema.scalars import Duration, Severity
from stepwatch.schema.section import Block, default

RUNS = "Measured on public runs."
SIMULATED = "Measured on simulated runs."
COMPUTED = "By calculation."
DOCUMENTED = "From the vendor's documentation."
REPORTED = "From public reports."
JUDGED = "An estimate."
"""Chosen without a measurement of its own. Limits about runs are scored together on labelled public runs
(docs/alert-quality.md), those among them as well."""

EVIDENCE = (RUNS, SIMULATED, COMPUTED, DOCUMENTED, REPORTED, JUDGED)
"""What a default limit rests on: the sentence that ends its reason in the reference."""


Translate = Callable[[str], str]
"""Gives a text in another language."""


class InfrastructureBlock(Block):
    """Limits that hold for all runs: no override can name them."""

    about_runs: ClassVar[bool] = False


class WarningBlock(InfrastructureBlock):
    """The limits of an alert that does not page."""

    severity: Severity = default("warning", "Does not page: if a run is affected, another alert pages.")


class CriticalBlock(InfrastructureBlock):
    """The limits of an alert that pages."""

    severity: Severity = default(
        "critical", "Pages: runs fail, hang, compute wrong results, or are not monitored."
    )


def hold(span: str, why: str, evidence: str) -> Any:
    """Return the default of the key ``for``, how long a condition must hold."""
    return default(Duration.parse(span), why, evidence, alias="for")


@dataclass(frozen=True)
class Condition:
    """One condition on which an alert fires: a value is beyond its limit, in the same unit."""

    measured: str
    comparison: Binary
    baseline: str = ""
    given: Expression | None = None
    signal: str = ""
    line: tuple[str, Expression] | None = None
    sparing: Expression | None = None
    unset: str = ""
    legend: str = ""

    @property
    def value(self) -> Expression:
        """What is measured."""
        return self.comparison.left

    @property
    def limit(self) -> Expression:
        """What the value is compared with."""
        return self.comparison.right

    @cached_property
    def expression(self) -> Expression:
        """The value, where the alert fires."""
        operator, bounds = self.comparison.operator, [self.limit]
        # Each operand of an extreme by itself is simpler to read, and the same.
        if isinstance(self.limit, Extreme) and operator[0] == (">" if self.limit.largest else "<"):
            bounds = list(self.limit.operands)
        held = all_of(Binary(operator, self.value, bound) for bound in bounds)
        if self.given:
            held = held & self.given
        return held.unless(self.sparing) if self.sparing else held

    @property
    def drawn(self) -> tuple[str, Expression]:
        """How the signal compares with the line in its panel when the alert fires, and the line."""
        return self.line or (self.comparison.operator, self.limit)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The limits of config.yaml that it depends on."""
        return limit_keys(self.expression)

    def translated(self, translate: Translate) -> Condition:
        """Return the same with its texts in another language."""
        measured, baseline = translate(self.measured), self.baseline and translate(self.baseline)
        legend = self.legend and translate(self.legend)
        return replace(self, measured=measured, baseline=baseline, legend=legend)


def limit_keys(*expressions: Expression) -> frozenset[str]:
    """Return the limits of config.yaml in expressions, by key within their block: ``warning.stddevs``."""
    return frozenset(part.key for each in expressions for part in each.parts() if isinstance(part, Limit))


@dataclass(frozen=True)
class Fact:
    """What a message says beside value and limit: a template for each series of the query (``%s``: run)."""

    query: str
    text: str


STEP = Fact("max(rl_step{%s})", "; step {{.Value}}")

NUMBER = "%.4g"
WHOLE = "%.0f"
RATIO = "humanizePercentage"
DURATION = "humanizeDuration"
BYTES = "humanize1024"
NOTHING = ""


class Explanation(NamedTuple):
    """What a code means, and what to do first: parts of sentences."""

    meaning: str
    action: str


@dataclass(frozen=True)
class Codes:
    """The texts of an alert by a driver's code, each recorded as a constant series (``alert_code_info``)."""

    label: str
    texts: Mapping[Any, Explanation]
    by_value: bool = False
    source: str = ""

    def translated(self, translate: Translate) -> Codes:
        """Return the same with its texts in another language."""
        texts = {
            code: Explanation(translate(text.meaning), translate(text.action))
            for code, text in self.texts.items()
        }
        return replace(self, texts=texts)


@dataclass(frozen=True)
class Alert:
    """An alert of one severity.

    Attributes:
        block: The model of its limits, whose name is its key below ``alerts``.
        severity: ``critical``, ``warning`` or ``info``; None where config.yaml says it.
        topic: What it is grouped by in messages: ``reward``, ``gpu``.
        summary: What is wrong, in at most 60 characters.
        action: What to do first.
        conditions: Each makes it fire; in the order in which a message names them.
        given: What must hold whichever condition does.
        sparing: Where it stays silent.
        unit: Behind value and limit: `` nats/token``.
        style: How numbers are written: a verb of ``printf``, or a function of Prometheus' templates; empty
            where the value says nothing, as that of a state.
        facts: What the message about a run says behind the limit.
        others: Whether the message says what else fires for the run.
        about: What it is about: ``run``, ``end`` for a run that may have finished, else a name in
            ``rules.subjects.SUBJECTS``.
        wait: How long its condition must hold before it fires; empty for not at all. The key ``for`` of its
            block says it instead, where there is one.
        keep: Whether it goes on firing for `notify.keep_firing_for`.
        codes: Its texts by a code of the driver.
    """

    block: type[Block]
    severity: str | None = None
    _: KW_ONLY
    topic: str
    summary: str
    action: str
    conditions: tuple[Condition, ...]
    given: Expression | None = None
    sparing: Expression | None = None
    unit: str = ""
    style: str = NUMBER
    facts: tuple[Fact, ...] = (STEP,)
    others: bool = True
    about: str = "run"
    wait: str = ""
    keep: bool = True
    codes: Codes | None = None

    @property
    def name(self) -> str:
        """Its name in messages, silences and routes."""
        return self.block.names.get(self.severity or "", self.block.__name__)

    @property
    def level(self) -> str:
        """The key of its limits within the block that switches it off when null; empty for none."""
        return self.severity if self.severity in self.block.model_fields else ""

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The keys that must be on: of the block, and of each level whose limits it takes."""
        taken = (key.partition(".")[0] for each in self.conditions for key in each.keys if "." in key)
        return ("enabled", *sorted(filter(None, {self.level, *taken})))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The limits that it compares with, by key within its block: ``warning.stddevs``."""
        return limit_keys(*self._expressions)

    @cached_property
    def _expressions(self) -> tuple[Expression, ...]:
        return (*(each.expression for each in self.conditions), *filter(None, (self.given, self.sparing)))

    def unit_of(self, key: str) -> str:
        """Return the unit of a limit by its name: of the alert, where that says nothing else."""
        name = key.rpartition(".")[2]
        if "stddevs" in name:
            return "standard deviations"
        if name.startswith("times_") or name == "intervals":
            return "times"
        if name in ("severity", "for", "steps", "records", "restarts", "checkpoints"):
            return ""
        return "share" if "ratio" in name else self.unit.strip()

    @property
    def from_records(self) -> bool:
        """Whether the records of a run alone decide it: not the time, the past, or another target."""
        parts = [part for each in self._expressions for part in each.parts()]
        return (
            self.subject == "run"
            and not (self.wait or "for_" in self.block.model_fields)
            and not any(isinstance(part, Formula) for part in parts)
            and all(
                part.metric.startswith("rl_") and not part.over for part in parts if isinstance(part, Series)
            )
        )

    def translated(self, translate: Translate) -> Alert:
        """Return the same with its texts in another language."""
        return replace(
            self,
            summary=translate(self.summary),
            action=translate(self.action),
            conditions=tuple(each.translated(translate) for each in self.conditions),
            unit=self.unit and translate(self.unit),
            facts=tuple(Fact(each.query, translate(each.text)) for each in self.facts),
            codes=self.codes and self.codes.translated(translate),
        )

    @property
    def subject(self) -> str:
        """What it is about, by its name in ``rules.subjects.SUBJECTS``."""
        return "run" if self.about == "end" else self.about

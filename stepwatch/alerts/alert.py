"""What an alert is: an entry of the table, from which its rules, messages, lines and documents follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from stepwatch.alerts import promql
from stepwatch.schema.errors import NOTHING as NO_VALUE
from stepwatch.schema.errors import Fault
from stepwatch.schema.scalars import Severity, Topic
from stepwatch.schema.section import Block, Section

EVIDENCE = {
    "runs": "Measured on public runs.",
    "simulated": "Measured on simulated runs.",
    "computed": "By calculation.",
    "documented": "From the vendor's documentation.",
    "reported": "From public reports.",
    "judged": "An estimate.",
}
"""What a default limit rests on: the sentence that ends its reason in the reference.

What is `judged` was chosen without a measurement of its own. Limits about runs are scored together on
labelled public runs (docs/alert-quality.md), those among them as well.
"""

STYLES = {
    "number": "%.4g",
    "whole": "%.0f",
    "ratio": "humanizePercentage",
    "duration": "humanizeDuration",
    "bytes": "humanize1024",
    "none": "",
}
"""How messages write numbers: a verb of ``printf``, or a function of Prometheus' templates.

With `none` the value says nothing, as that of a state.
"""
WHOLE, RATIO, DURATION, BYTES = (STYLES[name] for name in ("whole", "ratio", "duration", "bytes"))

OPERATORS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<=", "equals": "==", "differs": "!="}

Translate = Callable[[str], str]
"""Gives a text in another language."""

Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
"""PromQL with limits by name and calls of macros; YAML reads a lone number as one."""


class Compared(Section):
    """A value's limit, by how the two compare: one of these."""

    above: Text | None = None
    at_least: Text | None = None
    below: Text | None = None
    at_most: Text | None = None
    equals: Text | None = None
    differs: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Compared:
        if sum(getattr(self, name) is not None for name in OPERATORS) != 1:
            raise Fault(
                "does not have one limit",
                expected=f"one of {', '.join(OPERATORS)}",
                fix="write one of them",
                value=NO_VALUE,
            )
        return self

    @cached_property
    def relation(self) -> str:
        """Which of these keys it has."""
        return next(name for name in OPERATORS if getattr(self, name) is not None)

    @property
    def operator(self) -> str:
        """The operator of PromQL between value and limit."""
        return OPERATORS[self.relation]

    @property
    def limit(self) -> str:
        """What the value is compared with."""
        limit: str = getattr(self, self.relation)
        return limit


OWN_LIMIT = "limit"
"""Names the limit of a condition itself in its line: ``best(reward) - $limit``."""


class Condition(Compared):
    """One condition on which an alert fires: a value is beyond its limit, in the same unit.

    ``label`` tells it from others in ``rl_limit``: unless an entry says one, what the limit follows from,
    with what is measured where that is alike.
    """

    label: str = ""
    measured: str
    value: Text
    baseline: str = Field("", alias="from")
    given: Text = ""
    unless: Text = ""
    unset: Annotated[str, AfterValidator(lambda named: named.removeprefix("$"))] = ""
    signal: str = ""
    line: Compared | None = None
    legend: str = ""

    @property
    def expression(self) -> str:
        """The value, where the alert fires."""
        return self.where(promql.compared(self.value, self.operator, self.limit))

    def where(self, held: str) -> str:
        """Return a comparison of value and limit with what else must hold."""
        if self.given:
            held = promql.joined("and", held, self.given)
        return promql.joined("unless", held, self.unless) if self.unless else held

    @property
    def drawn(self) -> Compared:
        """How the signal compares with the line in its panel when the alert fires, and the line."""
        return self.line or self

    @cached_property
    def keys(self) -> frozenset[str]:
        """The limits of config.yaml that it depends on, by key within the block: ``warning.stddevs``."""
        return promql.keys(self.value, self.limit, self.given, self.unless)

    def translated(self, translate: Translate) -> Condition:
        """Return the same with its texts in another language."""
        texts = {name: getattr(self, name) for name in ("measured", "baseline", "legend")}
        return self.model_copy(update={name: text and translate(text) for name, text in texts.items()})


class Fact(NamedTuple):
    """What a message says beside value and limit: a template for each series of the query (``%s``: run)."""

    query: str
    text: str


class Explanation(NamedTuple):
    """What a code means, and what to do first: parts of sentences."""

    meaning: str
    action: str


class Codes(Section):
    """The texts of an alert by a driver's code, each recorded as a constant series (``alert_code_info``)."""

    label: str
    table: str
    by_value: bool = False
    source: str = ""
    _texts: dict[Any, Explanation] = PrivateAttr(default_factory=dict)

    @property
    def texts(self) -> Mapping[Any, Explanation]:
        """The texts by code."""
        return self._texts

    def with_texts(self, texts: dict[Any, Explanation]) -> Codes:
        """Return the same with these texts."""
        copy = self.model_copy()
        copy._texts = texts  # noqa: SLF001  (its own)
        return copy

    def translated(self, translate: Translate) -> Codes:
        """Return the same with its texts in another language."""
        return self.with_texts(
            {code: Explanation(*map(translate, text)) for code, text in self._texts.items()}
        )


class Limit(Section):
    """A limit of config.yaml: its default, and why it is that."""

    default: Any
    why: str = ""
    evidence: Literal["", "runs", "simulated", "computed", "documented", "reported", "judged"] = ""
    type: str = ""
    falling: bool = False


class Alert(Section):
    """An alert of one severity.

    Attributes:
        severity: ``critical``, ``warning`` or ``info``; None where config.yaml says it.
        own_name: Its name, where that is not its block's.
        about: What its limits have in common; ``limits`` are those below its severity in config.yaml.
        topic: What it is grouped by in messages: ``reward``, ``gpu``.
        summary: What is wrong, in at most 60 characters.
        action: What to do first.
        conditions: Each makes it fire; in the order in which a message names them.
        given: What must hold whichever condition does.
        unless: Where it stays silent.
        unit: Behind value and limit: ``nats/token``.
        style: How numbers are written: a key of ``STYLES``, or a verb of ``printf``.
        facts: What the message about a run says behind the limit: names in facts.yaml.
        others: Whether the message says what else fires for the run.
        subject: What it is about: a name in ``rules.subjects.SUBJECTS``.
        finished: Whether it also fires for runs that have finished.
        wait: How long its condition must hold before it fires; empty for not at all. The key ``for`` of its
            block says it instead, where there is one.
        keep: Whether it goes on firing for `notify.keep_firing_for`.
        codes: Its texts by a code of the driver.
        runbook: The address of a page about it, where that is not an entry of the runbook.
    """

    severity: Severity | None = None
    own_name: str = Field("", alias="name")
    about: str = ""
    limits: dict[str, Limit] = Field(default_factory=dict)
    topic: Topic
    summary: str
    action: str
    conditions: tuple[Condition, ...] = ()
    given: Text = ""
    unless: Text = ""
    unit: str = ""
    style: str = "number"
    facts: tuple[str, ...] = ("step",)
    others: bool = True
    subject: str = "run"
    finished: bool = False
    wait: str = ""
    keep: bool = True
    codes: Codes | None = None
    runbook: str = ""
    _block: type[Block] = PrivateAttr(default=Block)
    _source: str = PrivateAttr(default="")

    @property
    def block(self) -> type[Block]:
        """The model of its limits, whose name is its key below ``alerts``."""
        return self._block

    @property
    def source(self) -> str:
        """The name of its file, which is the context of translations."""
        return self._source

    def placed(self, block: type[Block], source: str) -> Alert:
        """Return the same in its block and file, with labels for its conditions."""
        copy = self.model_copy(update={"conditions": tuple(self._labelled())})
        copy._block, copy._source = block, source  # noqa: SLF001  (its own)
        return copy

    def _labelled(self) -> Iterator[Condition]:
        for each in self.conditions:
            alike = sum(other.baseline == each.baseline for other in self.conditions) > 1
            label = f"{each.measured.rstrip(':')}, " * alike + (each.baseline or "fixed")
            yield each.model_copy(update={"label": each.label or label.replace("`", "")})

    @property
    def name(self) -> str:
        """Its name in messages, silences and routes."""
        return self.own_name or self.block.__name__

    @property
    def level(self) -> str:
        """The key of its limits within the block that switches it off when null; empty for none."""
        return self.severity if self.severity and self.severity in self.block.model_fields else ""

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The keys that must be on: of the block, and of each level whose limits it takes."""
        taken = (key.partition(".")[0] for each in self.conditions for key in each.keys if "." in key)
        return ("enabled", *sorted(filter(None, {self.level, *taken})))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The limits that it compares with, by key within its block: ``warning.stddevs``."""
        return promql.keys(self.given, self.unless).union(*(each.keys for each in self.conditions))

    @property
    def shown_unit(self) -> str:
        """The unit as it stands behind a number."""
        return f" {self.unit}" if self.unit and self.style != "bytes" else self.unit

    @property
    def verb(self) -> str:
        """A verb of ``printf``, or a function of Prometheus' templates, that writes its numbers."""
        return STYLES.get(self.style, self.style)

    def unit_of(self, key: str) -> str:
        """Return the unit of a limit by its name: of the alert, where that says nothing else."""
        name = key.rpartition(".")[2]
        if "stddevs" in name:
            return "standard deviations"
        if name.startswith("times_") or name == "intervals":
            return "times"
        if name in ("severity", "for", "steps", "records", "restarts", "checkpoints"):
            return ""
        return "share" if "ratio" in name else self.unit

    @property
    def from_records(self) -> bool:
        """Whether the records of a run alone decide it: not the time, the past, or another target."""
        texts = " ".join((self.given, self.unless, *(f"{each.expression}" for each in self.conditions)))
        elsewhere = ("time()", "[", "since_last_step(", "increased(", "alive(")
        waits = self.wait or "for_" in self.block.model_fields
        return self.subject == "run" and not waits and not any(word in texts for word in elsewhere)

    def translated(self, translate: Translate) -> Alert:
        """Return the same with its texts in another language."""
        return self.model_copy(
            update={
                "summary": translate(self.summary),
                "action": translate(self.action),
                "conditions": tuple(each.translated(translate) for each in self.conditions),
                "unit": self.unit and translate(self.shown_unit).lstrip(),
                "codes": self.codes and self.codes.translated(translate),
            }
        )

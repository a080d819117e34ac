"""What an alert is: one entry, from which its rules, messages, limit lines and documents follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from stepwatch.alerts.expression import Binary, Expression, Extreme, Limit, Raw, Series, all_of
from stepwatch.schema.block import Block


@dataclass(frozen=True)
class Way:
    """One way for an alert to fire: a value is beyond its limit.

    Attributes:
        measured: What the value is, as a message says it: ``reward, mean of 20 steps``.
        value: What is measured.
        operator: How it compares with the limit when the alert fires: ``>``, ``>=``, ``<``, ``<=`` or ``==``.
        limit: What it is compared with, in the unit of the value.
        basis: What the limit follows from, as a message says it: ``from its best``; empty for a number.
        given: What must hold as well.
        sparing: Where it does not fire.
        unset: The key of a limit that replaces this way where it is set.
        signal: The signal in whose panel the limit is drawn; empty for none.
        line: How the signal compares with what is drawn when the alert fires, and that, where the value is
            not the signal; operator and limit if left out.
    """

    measured: str
    value: Expression
    operator: str
    limit: Expression
    basis: str = ""
    given: Expression | None = None
    signal: str = ""
    line: tuple[str, Expression] | None = None
    sparing: Expression | None = None
    unset: str = ""

    @property
    def condition(self) -> Expression:
        """The value, where the alert fires."""
        held = all_of(Binary(self.operator, self.value, bound) for bound in self._bounds)
        if self.given:
            held = held & self.given
        return held.unless(self.sparing) if self.sparing else held

    @property
    def drawn(self) -> tuple[str, Expression]:
        """How the signal compares with the line in its panel when the alert fires, and the line."""
        return self.line or (self.operator, self.limit)

    @property
    def keys(self) -> frozenset[str]:
        """The limits of config.yaml that it depends on."""
        return frozenset(part.key for part in self.condition.parts() if isinstance(part, Limit))

    @property
    def _bounds(self) -> tuple[Expression, ...]:
        """The limit, or each of several whose extreme it is: simpler to read, and the same."""
        beyond = ">" if isinstance(self.limit, Extreme) and self.limit.largest else "<"
        if isinstance(self.limit, Extreme) and self.operator.startswith(beyond):
            return self.limit.operands
        return (self.limit,)


@dataclass(frozen=True)
class Fact:
    """What a message says beside value and limit, where Prometheus knows it.

    Attributes:
        query: PromQL; ``%s`` selects the run.
        text: What is said of each series of the answer: a template in which ``.`` is the series.
    """

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
    """The texts of an alert that depend on a code of the driver, which its way names as ``{}``.

    Each is recorded as a constant series (``alert_code_info``), which a message looks up: a template that
    holds them all cannot be read, and a rule for each code evaluates one expression dozens of times.

    Attributes:
        label: The label that holds the code, in that series and in the alert or ``source``; no other
            alert has it.
        texts: By code.
        by_value: Whether the code is the value of the alert.
        source: PromQL of what has the code in its label, ``{}`` for the matchers of the alert's subject,
            where the alert has not: a code may change while the alert lasts, and would begin another one.
    """

    label: str
    texts: Mapping[Any, Explanation]
    by_value: bool = False
    source: str = ""


@dataclass(frozen=True)
class Alert:
    """An alert of one severity.

    Attributes:
        block: The model of its limits, whose name is its key below ``alerts``.
        name: Its name in messages, silences and routes; that of its block if left out.
        severity: ``critical``, ``warning`` or ``info``; None where config.yaml says it.
        level: The key of its limits within the block that switches it off when null; empty for none.
        topic: What it is grouped by in messages: ``reward``, ``gpu``.
        summary: What is wrong, in at most 60 characters.
        action: What to do first.
        ways: What makes it fire, in the order in which a message names them.
        given: What must hold whichever way it fires.
        sparing: Where it stays silent.
        unit: Behind value and limit: `` nats/token``.
        style: How numbers are written: a verb of ``printf``, or a function of Prometheus' templates; empty
            where the value says nothing, as that of a state.
        facts: What the message about a run says behind the limit.
        others: Whether the message says what else fires for the run.
        about: What it is about: ``run``, ``end`` for a run that may have finished, else a name in
            ``messages.SUBJECTS``.
        wait: How long its condition must hold before it fires; empty for not at all. The key ``for`` of its
            block says it instead, where there is one.
        keep: Whether it goes on firing for `notify.keep_firing_for`.
        codes: Its texts by a code of the driver.
    """

    block: type[Block]
    name: str = ""
    severity: str | None = None
    _: KW_ONLY
    topic: str
    summary: str
    action: str
    ways: tuple[Way, ...]
    level: str = ""
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.block.__name__)

    @property
    def switches(self) -> tuple[str, ...]:
        """The keys that must be on: of the block, and of each level whose limits it takes."""
        levels = {self.level, *(key.partition(".")[0] for way in self.ways for key in way.keys if "." in key)}
        return ("enabled", *sorted(filter(None, levels)))

    @property
    def keys(self) -> frozenset[str]:
        """The limits that it compares with, by key within its block: ``warning.stddevs``."""
        return frozenset(part.key for part in self._parts() if isinstance(part, Limit))

    def _parts(self) -> Iterator[Expression]:
        conditions = (*(way.condition for way in self.ways), *filter(None, (self.given, self.sparing)))
        return (part for condition in conditions for part in condition.parts())

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
        parts = list(self._parts())
        series = [part for part in parts if isinstance(part, Series)]
        return (
            self.subject == "run"
            and not (self.wait or "for_" in self.block.model_fields)
            and not any(isinstance(part, Raw) for part in parts)
            and all(each.metric.startswith("rl_") and not each.over for each in series)
        )

    @property
    def subject(self) -> str:
        """What it is about, by its name in ``messages.SUBJECTS``."""
        return "run" if self.about == "end" else self.about

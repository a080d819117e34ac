"""What an alert is: one entry, from which its rules, messages, limit lines and documents follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field

from stepwatch.alerts.expression import Binary, Expression, Extreme, Limit, all_of
from stepwatch.config.block import Block


def default(value: Any, why: str) -> Any:
    """Return the default of a limit with its reason: what it was measured on, or that it is judged."""
    return Field(value, description=why)


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
        line: Where it is drawn there; the limit itself if that is left out.
    """

    measured: str
    value: Expression
    operator: str
    limit: Expression
    basis: str = ""
    given: Expression | None = None
    signal: str = ""
    line: Expression | None = None
    sparing: Expression | None = None
    unset: str = ""

    @property
    def condition(self) -> Expression:
        """The value, where the alert fires."""
        bounds = self.limit.operands if self._is_beyond_all else (self.limit,)
        held = all_of(Binary(self.operator, self.value, bound) for bound in bounds)
        if self.given:
            held = held & self.given
        return held.unless(self.sparing) if self.sparing else held

    @property
    def keys(self) -> frozenset[str]:
        """The limits of config.yaml that it depends on."""
        return frozenset(part.key for part in self.condition.parts() if isinstance(part, Limit))

    @property
    def _is_beyond_all(self) -> bool:
        """Whether to be beyond the limit is to be beyond each of several: simpler to read than their extreme."""
        return isinstance(self.limit, Extreme) and self.operator[0] == (">" if self.limit.largest else "<")


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
        name: Its name in messages, silences and routes.
        severity: ``critical``, ``warning`` or ``info``; None where config.yaml says it.
        block: The model of its limits, whose name is its key below ``alerts``.
        level: The key of its limits within the block that switches it off when null; empty for none.
        topic: What it is grouped by in messages: ``reward``, ``gpu``.
        summary: What is wrong, in at most 60 characters.
        action: What to do first.
        ways: What makes it fire, in the order in which a message names them.
        given: What must hold whichever way it fires.
        sparing: Where it stays silent.
        unit: Behind the measured value: ``nats/token``.
        style: How numbers are written: a verb of ``printf``, or a function of Prometheus' templates such as
            ``humanizePercentage``; empty where the words of the ways say all.
        about: What it is about, by its name in ``messages.SUBJECTS``.
        wait: How long its condition must hold before it fires; empty for not at all. The key ``for`` of its
            block says it instead, where there is one.
        keep: Whether it goes on firing for `notify.keep_firing_for`.
        codes: Its texts by a code of the driver.
    """

    name: str
    severity: str | None
    block: type[Block]
    topic: str
    summary: str
    action: str
    ways: tuple[Way, ...]
    level: str = ""
    given: Expression | None = None
    sparing: Expression | None = None
    unit: str = ""
    style: str = "%.3g"
    about: str = "run"
    wait: str = ""
    keep: bool = True
    codes: Codes | None = None

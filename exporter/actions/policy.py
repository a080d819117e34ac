"""Which step is due: a pure function of configuration, current state and past steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

EVIDENCE, STOP = "evidence", "stop"
DAY_SECONDS = 86400.0
LATE_SECONDS = 600.0
"""How long after its veto window an unconfirmed step is dropped: a late step would be a surprise."""


@dataclass(frozen=True)
class Rule:
    """One policy of config.yaml; an empty ``severity`` fits any, ``hold`` and ``kill_after`` are seconds."""

    on: str
    severity: str
    hold: float
    runs: re.Pattern[str]
    do: tuple[str, ...]
    kill_after: float | None = None

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether the policy covers an alert with these labels."""
        return (
            labels.get("alertname") == self.on
            and self.severity in ("", labels.get("severity"))
            and bool(self.runs.fullmatch(labels.get("run", "")))
        )


@dataclass(frozen=True)
class Limits:
    """The guard rails of all policies, in seconds and stops of a run within 24 hours."""

    dry_run: bool = True
    veto: float = 300.0
    per_day: int = 3
    cooldown: float = 1800.0


class Alert(NamedTuple):
    """An alert about a run, as Alertmanager sent it; ``since`` is when it began to fire, in Unix seconds."""

    fingerprint: str
    labels: Mapping[str, str]
    since: float

    @property
    def run(self) -> str:
        """The run's name."""
        return self.labels.get("run", "")


class NotifiedAlert(NamedTuple):
    """An alert, and whether it fires."""

    alert: Alert
    firing: bool


class Attempt(NamedTuple):
    """One start of a trainer; ``target`` names how to reach it (or is empty), ``started`` is Unix seconds."""

    target: str
    number: int
    started: float


@dataclass(frozen=True)
class Seen:
    """The current state of an alert and its run; ``None`` is unknown, ``why`` is why it is not ``alive``."""

    holds: bool | None
    muted: bool = False
    attempt: Attempt | None = None
    alive: bool = False
    why: str = ""


class Result(NamedTuple):
    """The result of a step; ``dry``: it was not done, because of a dry run."""

    done: bool
    text: str
    dry: bool = False

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return not (self.done or self.dry)


@dataclass
class Action:
    """The action for one cause, an alert and the affected attempt of the run, by the audit log.

    ``step`` is the step that has begun and not ended, ``acted`` when the stop began, ``stepped`` when the
    last step ended. ``outcome`` is empty while it is open, then ``done``, ``failed``, ``vetoed``,
    ``dropped``, ``refused`` or ``interrupted``; ``reason`` says why. Times are Unix seconds.
    """

    id: str
    run: str
    alert: str
    severity: str
    fingerprint: str
    since: float
    attempt: Attempt
    do: tuple[str, ...]
    kill_after: float | None
    dry_run: bool
    opened: float
    announced: float | None = None
    deadline: float | None = None
    vetoed: bool = False
    step: str = ""
    acted: float | None = None
    stepped: float = 0.0
    results: dict[str, Result] = field(default_factory=dict)
    closed: float | None = None
    outcome: str = ""
    reason: str = ""

    @property
    def stops(self) -> bool:
        """Whether it stops the run."""
        return STOP in self.do

    @property
    def stands(self) -> bool:
        """Whether it is all that is done about its cause: it is not if it was dropped and changed nothing."""
        return self.acted is not None or self.outcome not in ("dropped", "interrupted")


class Decision(NamedTuple):
    """A decision: ``what`` is the due step, the outcome, or the reason to wait or to ignore."""

    verb: Literal["wait", "ignore", "open", "announce", "do", "close"]
    what: str = ""
    reason: str = ""


def action_id(alert: Alert, attempt: Attempt, onset: float, *, dry_run: bool) -> str:
    """Return the name of what is done about a cause since an onset of it, the same for the same one."""
    cause = "\0".join((alert.fingerprint, attempt.target, str(attempt.number), str(onset), str(dry_run)))
    return sha256(cause.encode()).hexdigest()[:12]


def to_open(
    rule: Rule,
    limits: Limits,
    alert: Alert,
    seen: Seen,
    others: Sequence[Action],
    *,
    off: bool,
    started: float,
    held: float,
    now: float,
) -> Decision:
    """Decide about an alert with no open action; ``others`` are on this run, dry ones only in a dry run."""
    if off or alert.since < started:
        return Decision("ignore", "switched_off" if off else "older")
    if not seen.holds or seen.muted or seen.attempt is None:
        return Decision("wait")
    cause = (alert.fingerprint, *seen.attempt[:2])
    again = any(each.stands and (each.fingerprint, *each.attempt[:2]) == cause for each in others)
    if again or seen.attempt.started >= alert.since:
        return Decision("ignore", "already" if seen.attempt.started < alert.since else "new_attempt")
    if now - max(held, alert.since) < rule.hold:
        return Decision("wait")
    reason = _held_back(limits, others, now) if STOP in rule.do else ""
    return Decision("wait", reason) if reason else Decision("open")


def _held_back(limits: Limits, others: Sequence[Action], now: float) -> str:
    """Why a run may not be stopped now; empty if it may."""
    for each in others:
        if each.stops and not each.outcome:
            return "another_open"
        vetoed = each.closed if each.outcome == "vetoed" else None
        if any(at is not None and now - at < limits.cooldown for at in (each.acted, vetoed)):
            return "cooldown"
    day = sum(each.acted is not None and now - each.acted < DAY_SECONDS for each in others)
    return "per_day" if day >= limits.per_day else ""


def to_go_on(action: Action, seen: Seen, *, off: bool, now: float) -> Decision:
    """Decide about an open action, by what is known now of its alert; ``off``: the kill switch is on."""
    if action.step:  # only where its result could not be written down
        return Decision("close", "interrupted", "unknown")
    if STOP in action.results:
        return _after_stop(action, seen, off=off, now=now)
    if action.vetoed:
        return Decision("close", "vetoed", "by_hand")
    waits_since = max(action.opened if action.deadline is None else action.deadline, action.stepped)
    reasons = {
        "switched_off": off,
        "resolved": seen.holds is False,
        "muted": seen.muted,
        "new_attempt": seen.attempt is not None and seen.attempt != action.attempt,
        "unconfirmed": now - waits_since > LATE_SECONDS,
    }
    if reason := next((reason for reason, so in reasons.items() if so), ""):
        return Decision("close", "dropped", reason)
    return _next(action, seen, now) if seen.holds and seen.attempt else Decision("wait")


def _next(action: Action, seen: Seen, now: float) -> Decision:
    """Return the next step up to the stop."""
    if EVIDENCE in action.do and EVIDENCE not in action.results:
        return Decision("do", EVIDENCE)
    if not action.stops:
        failed = any(result.failed for result in action.results.values())
        return Decision("close", "failed" if failed else "done")
    if not seen.alive:
        return Decision("close", "refused", seen.why)
    if action.deadline is None:
        return Decision("announce")
    return Decision("do", STOP) if now >= action.deadline else Decision("wait")


def _after_stop(action: Action, seen: Seen, *, off: bool, now: float) -> Decision:
    """After the stop, only SIGKILL may follow."""
    kill, after = action.results.get("kill"), action.kill_after
    if action.results[STOP].failed or (kill and kill.failed):
        return Decision("close", "failed")
    known = seen.attempt is not None
    over = kill or after is None or action.dry_run or off or action.vetoed
    if over or after is None or (known and (not seen.alive or seen.attempt != action.attempt)):
        return Decision("close", "done")
    due = (action.acted or now) + after
    if known:
        return Decision("do", "kill") if now >= due else Decision("wait")
    return Decision("close", "done") if now > due + LATE_SECONDS else Decision("wait")

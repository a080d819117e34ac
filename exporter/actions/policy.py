"""Which step is due: a pure function of configuration, current state and past steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

EVIDENCE, CHECKPOINT = "evidence", "checkpoint"
DISRUPTIVE = (CHECKPOINT, "pause", "stop")
"""Steps that change the run: announced, with time for a veto."""
DAY_SECONDS = 86400.0
LATE_SECONDS = 600.0
"""How long after its veto window an unconfirmed step is dropped: a late step would be a surprise."""


@dataclass(frozen=True)
class Rule:
    """One policy of config.yaml.

    Attributes:
        on: The alert's name.
        severity: Its severity; empty for any.
        hold: Seconds for which it must have been firing.
        runs: Matches the whole names of the runs that it covers.
        do: The steps, in order.
        kill_after: Seconds from ``stop`` to SIGKILL for a trainer that still runs; ``None`` for never.
    """

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

    @property
    def disruptive(self) -> bool:
        """Whether it changes the run."""
        return not set(DISRUPTIVE).isdisjoint(self.do)


@dataclass(frozen=True)
class Limits:
    """The guard rails of all policies.

    Attributes:
        dry_run: Log and announce, but do nothing.
        veto: Seconds from the announcement to the step.
        per_day: Most actions on one run within 24 hours.
        cooldown: Minimum seconds between an action on a run, or its veto, and the next.
    """

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
    """One start of a trainer.

    ``target`` names the way to reach it, such as ``log /runs/a.log``; empty if there is none. ``number``
    distinguishes it from others of this target. ``started`` is in Unix seconds.
    """

    target: str
    number: int
    started: float


@dataclass(frozen=True)
class Seen:
    """The current state of an alert and its run.

    Attributes:
        holds: Whether its condition holds; ``None`` if unknown.
        muted: Whether it is silenced, or inhibited by another one.
        attempt: The run's last attempt; ``None`` if unknown.
        alive: Whether that can be acted on.
        why: Why it cannot.
    """

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
    """The action for one cause: an alert and the affected attempt of the run.

    It is the state by the audit log. ``step`` is the step that has begun and not ended, ``acted`` when the
    last step that changes the run began, ``stepped`` when the last step ended. ``outcome`` is empty while it
    is open, then ``done``, ``failed``, ``vetoed``, ``dropped``, ``refused`` or ``interrupted``; ``reason``
    says why. Times are Unix seconds.
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
    def change(self) -> str:
        """The last step that changes the run; empty if none does."""
        return next((step for step in reversed(self.do) if step in DISRUPTIVE), "")

    @property
    def stands(self) -> bool:
        """Whether it is all that is done about its cause: it is not if it was dropped and changed nothing."""
        return self.acted is not None or self.outcome not in ("dropped", "interrupted")

    def is_about(self, alert: Alert, attempt: Attempt) -> bool:
        """Whether an alert and an attempt are its cause, at whichever onset."""
        return (self.fingerprint, *self.attempt[:2]) == (alert.fingerprint, *attempt[:2])


Verb = Literal["wait", "ignore", "open", "announce", "do", "close"]


class Decision(NamedTuple):
    """A decision: ``what`` is the due step, the outcome, or the reason to wait or to ignore."""

    verb: Verb
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
    """Decide about an alert about which no action is open.

    Args:
        rule: The first policy that fits the alert.
        limits: The guard rails.
        alert: The alert.
        seen: What is known of it now.
        others: All actions on this run, dry ones only in a dry run.
        off: Whether the kill switch is on.
        started: When this service began.
        held: Since when the alert has been seen to hold without a break.
        now: The present time.
    """
    if off or alert.since < started:
        return Decision("ignore", "switched_off" if off else "older")
    if not seen.holds or seen.muted or seen.attempt is None:
        return Decision("wait")
    if reason := _left_alone(alert, seen.attempt, others):
        return Decision("ignore", reason)
    if now - max(held, alert.since) < rule.hold:
        return Decision("wait")
    if rule.disruptive and (reason := _held_back(limits, others, now)):
        return Decision("wait", reason)
    return Decision("open")


def _left_alone(alert: Alert, attempt: Attempt, others: Iterable[Action]) -> str:
    """Why an alert causes nothing, however long it holds; empty if it may."""
    if attempt.started >= alert.since:
        return "new_attempt"
    return "already" if any(each.stands and each.is_about(alert, attempt) for each in others) else ""


def _held_back(limits: Limits, others: Iterable[Action], now: float) -> str:
    """Why no action on a run may begin now; empty if one may."""
    acted = []
    for each in others:
        if not each.outcome and each.change:
            return "another_open"
        vetoed = each.closed if each.outcome == "vetoed" else None
        last = max(filter(None, (each.acted, vetoed)), default=None)
        if last is not None and now - last < limits.cooldown:
            return "cooldown"
        acted.append(each.acted)
    day = sum(at is not None and now - at < DAY_SECONDS for at in acted)
    return "per_day" if day >= limits.per_day else ""


def to_go_on(action: Action, seen: Seen, *, off: bool, now: float) -> Decision:
    """Decide about an open action.

    Args:
        action: The action.
        seen: What is known now of its alert.
        off: Whether the kill switch is on.
        now: The present time.
    """
    if action.step:  # only where its result could not be written down
        return Decision("close", "interrupted", "unknown")
    if action.change in action.results:
        return _after_change(action, seen, off=off, now=now)
    return Decision("close", "vetoed", "by_hand") if action.vetoed else _before_change(action, seen, off, now)


def _before_change(action: Action, seen: Seen, off: bool, now: float) -> Decision:  # noqa: FBT001
    """Decide about an action before its last change of the run."""
    if reason := _over(action, seen, off=off, now=now):
        return Decision("close", "dropped", reason)
    if not seen.holds or seen.attempt is None:
        return Decision("wait")
    step = next((step for step in action.do if step != "notify" and step not in action.results), None)
    if step is None:
        failed = any(result.failed for result in action.results.values())
        return Decision("close", "failed" if failed else "done")
    return Decision("do", step) if step not in DISRUPTIVE else _to_change(action, step, seen, now)


def _over(action: Action, seen: Seen, *, off: bool, now: float) -> str:
    """Why an action must not change the run; empty if it may."""
    waits_since = max(action.opened if action.deadline is None else action.deadline, action.stepped)
    reasons = {
        "switched_off": off,
        "resolved": seen.holds is False,
        "muted": seen.muted,
        "new_attempt": seen.attempt is not None and seen.attempt != action.attempt,
        "unconfirmed": now - waits_since > LATE_SECONDS,
    }
    return next((reason for reason, so in reasons.items() if so), "")


def _to_change(action: Action, step: str, seen: Seen, now: float) -> Decision:
    """Decide about a step that changes the run, before it is done."""
    if not seen.alive:
        return Decision("close", "refused", seen.why)
    if action.deadline is None:
        return Decision("announce")
    return Decision("do", step) if now >= action.deadline else Decision("wait")


def _after_change(action: Action, seen: Seen, *, off: bool, now: float) -> Decision:
    """After the run was changed, only SIGKILL may follow, after a ``stop``."""
    result, kill = action.results[action.change], action.results.get("kill")
    if result.failed or (kill and kill.failed):
        return Decision("close", "failed")
    over = kill or action.kill_after is None or action.change != "stop" or action.dry_run
    if over or off or action.vetoed or (seen.attempt is not None and not seen.alive):
        return Decision("close", "done")
    due = (action.acted or now) + (action.kill_after or 0)
    if seen.attempt is None:
        return Decision("close", "done") if now > due + LATE_SECONDS else Decision("wait")
    if seen.attempt != action.attempt:
        return Decision("close", "done")
    return Decision("do", "kill") if now >= due else Decision("wait")

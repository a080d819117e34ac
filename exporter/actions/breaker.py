"""The circuit breaker: alerts come in, decisions are made again and again, and steps are done."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock, Thread
from typing import Protocol

from exporter.actions.audit import Audit, opening
from exporter.actions.messages import OUTCOME_SECONDS, Messages, is_announced
from exporter.actions.policy import (
    EVIDENCE,
    Action,
    Alert,
    Decision,
    Limits,
    NotifiedAlert,
    Result,
    Rule,
    Seen,
    action_id,
    to_go_on,
    to_open,
)

logger = logging.getLogger("exporter.actions")

POST_SECONDS = 15.0
"""Between two posts of what Alertmanager is to show."""
COLLECTED_AT_ONCE = 4
"""Archives: the machine that trains has other work."""
OFF = "off"
"""The file in the state folder that is the kill switch."""


class Look(Protocol):
    """What the breaker needs of the other parts; implemented by ``StackClient``."""

    def refresh(self) -> None: ...

    def look(self, alert: Alert) -> Seen: ...

    def post(self, alerts: list[dict[str, object]]) -> bool: ...


class Breaker:
    """Decides and acts; any thread may call it. ``spawn`` runs a step, which may take minutes."""

    def __init__(
        self,
        rules: Sequence[Rule],
        limits: Limits,
        *,
        audit: Audit,
        stack: Look,
        perform: Callable[[str, Action], Result],
        messages: Messages,
        clock: Callable[[], float] = time.time,
        spawn: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.limits, self.audit, self.started = limits, audit, clock()
        self.failures: Counter[str] = Counter({"post": 0, "audit": 0})
        self._rules, self._stack, self._perform = tuple(rules), stack, perform
        self._messages, self._clock = messages, clock
        self._spawn = spawn or (
            lambda do: Thread(target=self.survive, args=(do,), name="step", daemon=True).start()
        )
        self._busy: set[str] = set()
        self._switch = audit.path.with_name(OFF)
        self._alerts: dict[str, tuple[Alert, Rule]] = {}
        # By fingerprint: since when the condition holds, and which onset of the alert causes nothing more.
        self._held: dict[str, float] = {}
        self._ignored: dict[str, float] = {}
        self._said: set[tuple[str, float, str]] = set()
        self.looks = 0
        self._posted = 0.0
        self._lock = RLock()
        # What an earlier process left open: no step is repeated or done late.
        for action in audit.open():
            self._close(action, "interrupted", "unknown" if action.step else "restarted")

    @property
    def off(self) -> bool:
        """Whether the kill switch is on, or its state is unreadable."""
        try:
            self._switch.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True

    def switch_off(self) -> None:
        """Turn the kill switch on. Removing its file turns it off. Raises OSError."""
        self._switch.touch()
        with self._lock:
            self.audit.append(self._clock(), "switched_off")

    @property
    def watched(self) -> int:
        """The number of alerts that a policy covers."""
        return len(self._alerts)

    def actions(self) -> list[Action]:
        """All actions, the latest first."""
        with self._lock:
            return sorted(self.audit.actions.values(), key=lambda action: action.opened, reverse=True)

    def receive(self, alerts: Sequence[NotifiedAlert]) -> None:
        """Accept alerts."""
        with self._lock:
            for alert, firing in alerts:
                if not firing:
                    self._alerts.pop(alert.fingerprint, None)
                    self._held.pop(alert.fingerprint, None)
                elif self._ignored.get(alert.fingerprint) == alert.since:
                    continue
                elif rule := next((rule for rule in self._rules if rule.fits(alert.labels)), None):
                    self._alerts[alert.fingerprint] = alert, rule

    def veto(self, name: str, by: str) -> bool:
        """Close an open action on a person's veto (no started step is undone). Returns if it was open."""
        with self._lock:
            action = self.audit.actions.get(name)
            if action is None or action.outcome:
                return False
            self.audit.append(self._clock(), "vetoed", name, by=by)
            if not action.step:  # else once that is over
                self._close(action, *to_go_on(action, Seen(None), off=False, now=self._clock())[1:])
            return True

    def tick(self) -> None:
        """Check each alert and action, and do the due steps."""
        with self._lock:
            alerts = list(self._alerts.values())
        if alerts or self.audit.open():
            self._stack.refresh()
            for alert, rule in alerts:
                self._begin(alert, rule, self._stack.look(alert))
            for action in self.audit.open():
                self._go_on(action)
        self.looks += 1
        now = self._clock()
        if not 0 <= now - self._posted < POST_SECONDS:
            self._posted = now
            self._post(now)

    def survive(self, do: Callable[[], None]) -> None:
        """Run a function and log its failure, whatever it is: none may end the ticks."""
        try:
            do()
        except OSError as problem:
            self.failures["audit"] += 1
            logger.error(  # noqa: TRY400 - a full disk
                "Cannot write the audit log: %s. No action is taken until writing works.", problem.strerror
            )
        except Exception:
            logger.exception("Checking the alerts, or a step, failed. The next check is in a second.")

    @property
    def busy(self) -> bool:
        """Whether a step is running."""
        return bool(self._busy)

    def _begin(self, alert: Alert, rule: Rule, seen: Seen) -> None:
        """Open an action, if one is due."""
        now, dry = self._clock(), self.limits.dry_run
        with self._lock:
            if alert.fingerprint not in self._alerts:  # it has just ended
                return
            if seen.holds is False:
                self._held.pop(alert.fingerprint, None)
            held = self._held.setdefault(alert.fingerprint, alert.since if seen.holds else now)
            actions = list(self.audit.actions.values())
            if any(not each.outcome and each.fingerprint == alert.fingerprint for each in actions):
                return
            name = seen.attempt and action_id(alert, seen.attempt, max(held, alert.since), dry_run=dry)
            if name in self.audit.actions:
                return
            others = [each for each in actions if (each.run, each.dry_run) == (alert.run, dry)]
            decided = partial(to_open, rule, self.limits, alert, seen, others, off=self.off)
            decision = decided(started=self.started, held=held, now=now)
            if decision.what:
                self._say(alert, decision)
            if decision.verb == "ignore":
                self._ignored[alert.fingerprint] = alert.since
                self._alerts.pop(alert.fingerprint)
            if decision.verb == "open" and seen.attempt and name:
                action = Action(
                    id=name,
                    run=alert.run,
                    alert=rule.on,
                    severity=alert.labels.get("severity", ""),
                    fingerprint=alert.fingerprint,
                    since=alert.since,
                    attempt=seen.attempt,
                    do=rule.do,
                    kill_after=rule.kill_after,
                    dry_run=dry,
                    opened=now,
                )
                self.audit.append(now, "opened", name, **opening(action))
                logger.info("%s of %s: action %s: %s", rule.on, alert.run, name, ", ".join(rule.do))

    def _go_on(self, action: Action) -> None:
        """Do the due steps of an open action."""
        for _ in range(len(action.do) + 3):
            seen = self._seen(action)
            if self._decided(action, seen).verb in ("announce", "do"):
                self._stack.refresh()  # what was known when the tick began may be over
                seen = self._seen(action)
            with self._lock:
                decision = self._decided(action, seen)
                if decision.verb == "close":
                    self._close(action, decision.what, decision.reason)
                elif decision.verb == "do":
                    self.audit.append(self._clock(), "intent", action.id, step=decision.what)
                    self._busy.add(action.id)
            if decision.verb == "announce":
                self._announce(action)
            elif decision.verb == "do":
                self._spawn(partial(self._do, action, decision.what))
            else:
                return

    def _decided(self, action: Action, seen: Seen) -> Decision:
        """What is due about an open action."""
        if action.outcome or action.id in self._busy:  # a veto came, or a step takes its time
            return Decision("wait")
        decision = to_go_on(action, seen, off=self.off, now=self._clock())
        collecting = sum(each.step == EVIDENCE for each in self.audit.open())
        if decision.what == EVIDENCE and collecting >= COLLECTED_AT_ONCE:
            return Decision("wait")
        return decision

    def _seen(self, action: Action) -> Seen:
        """What is known of the alert of an action: not to hold once Alertmanager said that it ended."""
        known = self._alerts.get(action.fingerprint)
        labels = {"alertname": action.alert, "severity": action.severity, "run": action.run}
        alert = known[0] if known else Alert(action.fingerprint, labels, action.since)
        seen = self._stack.look(alert)
        if known and known[0].since == action.since:
            return seen
        return Seen(holds=False, attempt=seen.attempt, alive=seen.alive, why=seen.why)

    def _announce(self, action: Action) -> None:
        """Announce a step; its veto window begins only after Alertmanager accepted the announcement."""
        now = self._clock()
        if not self._stack.post([self._messages.pending(action, now + self.limits.veto, now)]):
            self.failures["post"] += 1
            logger.warning(
                "Alertmanager does not accept the announcement of action %s. The action waits.", action.id
            )
            return
        with self._lock:
            if not action.outcome:
                now = self._clock()
                self.audit.append(now, "announced", action.id, deadline=now + self.limits.veto)

    def _do(self, action: Action, step: str) -> None:
        """Do a step whose intent is written."""
        switched_off = Result(done=False, text="the kill switch is on")  # since the decision
        try:
            result = switched_off if self.off else self._perform(step, action)
            with self._lock:
                dry = {"dry": True} if result.dry else {}
                result_fields = {"done": result.done, "text": result.text, **dry}
                self.audit.append(self._clock(), "result", action.id, step=step, **result_fields)
        finally:
            self._busy.discard(action.id)
        level = logging.WARNING if result.failed else logging.INFO
        logger.log(level, "action %s on %s: %s: %s", action.id, action.run, step, result.text)

    def _close(self, action: Action, outcome: str, reason: str) -> None:
        self.audit.append(self._clock(), "closed", action.id, outcome=outcome, reason=reason)
        logger.info("action %s on %s: %s %s", action.id, action.run, outcome, reason)
        self._posted = 0.0  # receivers are notified at the next tick
        known = self._alerts.get(action.fingerprint)
        if known and known[0].since != action.since:
            return
        if reason == "resolved" and not action.stands:  # what holds from now on is another onset
            self._held[action.fingerprint] = self._clock()
        elif known:  # it causes nothing more
            self._ignored[action.fingerprint] = action.since
            self._alerts.pop(action.fingerprint)

    def _say(self, alert: Alert, decision: Decision) -> None:
        """Log once why an alert causes no action."""
        key = alert.fingerprint, alert.since, decision.what
        if key not in self._said:
            self._said.add(key)
            name = alert.labels["alertname"]
            event = "ignored" if decision.verb == "ignore" else "held_back"
            self.audit.append(
                self._clock(), event, run=alert.run, alert=name, since=alert.since, reason=decision.what
            )
            logger.info("%s of %s: %s: %s", name, alert.run, event, decision.what)

    def _post(self, now: float) -> None:
        """Post announcements to Alertmanager, and for a while their outcomes."""
        posts = []
        for action in self.actions():
            if not action.outcome and action.deadline is not None:
                posts.append(self._messages.pending(action, action.deadline, now))
            elif action.closed is not None and now - action.closed < OUTCOME_SECONDS and is_announced(action):
                if action.announced is not None:
                    posts.append(self._messages.over(action))
                posts.append(self._messages.taken(action))
        if posts and not self._stack.post(posts):
            self.failures["post"] += 1

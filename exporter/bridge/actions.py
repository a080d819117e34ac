"""Actions on runs.

Alertmanager's webhook is the trigger, and its retries are the timer. What the parts say at that moment is all
that is acted on, and the audit log is all that is remembered.
"""

from __future__ import annotations

import logging
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from threading import RLock, Thread

from exporter.bridge.announcements import EXPIRY_SECONDS, OUTCOME_SECONDS, Announcements, is_announced
from exporter.bridge.audit import EVIDENCE, KILL, STOP, Action, Audit, safe
from exporter.bridge.robots import LATER, TAKEN
from exporter.bridge.stack import Stack, UnknownError
from exporter.bridge.webhook import Alert
from exporter.runs.files import launch

logger = logging.getLogger("exporter.bridge")

OFF = "off"
"""The file in the state folder that is the kill switch."""
DAY_SECONDS = 86400.0
LATE_SECONDS = 600.0
"""How long after its veto window an action may still be taken: a later one would be a surprise."""
LOST_SECONDS = 45.0
"""Without a webhook of its alert for so long, an announced action is checked: Alertmanager retries sooner."""
POST_SECONDS = 15.0
"""Between two posts of an announcement."""
ANSWER_SECONDS = 15.0
"""For a wrapper's answer; it looks for requests twice a second."""
EVIDENCE_SECONDS = 90.0
"""For an archive, which usually takes less than 30 s."""

Answer = tuple[int, str]
"""The status for Alertmanager, 200 or 503, and why."""


class StepError(Exception):
    """Raised when a step was not done; the text says why."""


@dataclass(frozen=True)
class Policy:
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
    """The guard rails of all policies: the veto window in seconds, and stops of a run within 24 hours."""

    dry_run: bool = True
    veto: float = 300.0
    per_day: int = 3


class Actions:
    """Decides about alerts and does steps; any thread may call it.

    ``evidence`` is the command that collects an archive of a run, without the run.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        limits: Limits,
        *,
        audit: Audit,
        stack: Stack,
        announcements: Announcements,
        evidence: Sequence[str],
    ) -> None:
        self.limits, self.audit = limits, audit
        self._policies, self._stack, self._announcements = tuple(policies), stack, announcements
        self._evidence, self._switch = tuple(evidence), audit.path.with_name(OFF)
        self._lock = RLock()
        self._heard: dict[str, tuple[Alert, float]] = {}
        """The alert of each action, and when it last came (seconds of the steady clock)."""
        self._posted: dict[str, float] = {}
        for action in audit.open():  # of a process that ended during a step
            if action.doing in (STOP, KILL):
                self._close(action, "interrupted", "unknown")
            elif action.acted:
                self._close(action, "failed" if action.failed else "done")
            action.doing = ""

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

    def arrive(self, alert: Alert) -> Answer:
        """Take an alert of a webhook. Raises OSError: the audit log cannot be written."""
        policy = next((each for each in self._policies if each.fits(alert.labels)), None)
        if policy is None:
            return TAKEN, "no policy is about this alert"
        with self._lock:
            try:
                return self._decide(alert, policy)
            except UnknownError as problem:
                return LATER, f"no action without an answer: {problem}"

    def _decide(self, alert: Alert, policy: Policy) -> Answer:
        run = alert.labels.get("run", "")
        known = self._stack.launch(run)
        attempt = (known.attempt, known.started) if known else (0, 0.0)
        cause = "\0".join(map(str, (alert.fingerprint, run, *attempt, self.limits.dry_run)))
        name = sha256(cause.encode()).hexdigest()[:12]
        action = self.audit.actions.get(name)
        if action and action.outcome not in ("", "dropped"):
            return TAKEN, f"{action.outcome}: this alert had its action in this attempt"
        for other in self.audit.open():  # of an earlier attempt, or before another `dry_run`
            if other.fingerprint == alert.fingerprint and other.id != name and not other.acted:
                self._close(other, "dropped", "new_attempt")
        if obstacle := next(self._obstacles(alert, policy, attempt[1]), None):
            status, words, reason = obstacle
            if reason and action and not action.outcome and not action.acted:
                self._close(action, "dropped", reason)
            return status, words
        if action is None or action.outcome:
            action = self._open(name, alert, policy, attempt[0])
        self._heard[name] = alert, time.monotonic()
        return self._go_on(action, alert, policy, known)

    def _obstacles(self, alert: Alert, policy: Policy, started: float) -> Iterator[tuple[int, str, str]]:
        """Yield why an alert causes nothing now: the answer, and the reason to drop its action, if any."""
        if not alert.firing:
            yield TAKEN, "the alert is resolved", "resolved"
        if self.off:
            yield TAKEN, "the kill switch is on", "switched_off"
        if started >= alert.begun:
            yield TAKEN, "the alert is about an earlier attempt", "new_attempt"
        if time.time() - alert.begun < policy.hold:
            yield LATER, f"the alert has not fired for {policy.hold:.0f} s", ""
        if self._stack.state(alert.fingerprint) != "active":
            yield LATER, "Alertmanager does not say that the alert is active", ""
        if not self._stack.holds(alert):
            yield LATER, "Prometheus does not say that the alert's condition holds", "recovered"

    def _open(self, name: str, alert: Alert, policy: Policy, attempt: int) -> Action:
        logger.info(
            "%s of %s: action %s: %s", alert.name, alert.labels.get("run"), name, ", ".join(policy.do)
        )
        return self.audit.append(
            time.time(),
            "opened",
            name,
            run=alert.labels.get("run", ""),
            alert=alert.name,
            severity=alert.labels.get("severity", ""),
            fingerprint=alert.fingerprint,
            attempt=attempt,
            do=list(policy.do),
            dry_run=self.limits.dry_run,
        )

    def _go_on(self, action: Action, alert: Alert, policy: Policy, known: launch.Launch | None) -> Answer:
        """Do what is due of an open action whose alert is confirmed."""
        if action.acted:
            return LATER, "the stop is under way"
        if action.stops:
            if refusal := self._refusal(action, known):
                self._close(action, "refused", refusal)
            elif not self._in_window(action, alert) and not action.outcome:
                return LATER, "Alertmanager does not take the announcement"
        if not action.outcome and EVIDENCE in action.do and EVIDENCE not in action.results:
            if not action.doing:
                self._start(action, policy, EVIDENCE)
            return LATER, "evidence is being collected"
        if not action.outcome and action.stops:
            if time.time() < (action.announced or 0.0) + self.limits.veto:
                return LATER, "the veto window is open"
            self._start(action, policy, STOP)
            return LATER, "the stop is under way"
        if not action.outcome:
            self._close(action, "failed" if action.failed else "done")
        return TAKEN, action.outcome

    def _refusal(self, action: Action, known: launch.Launch | None) -> str:
        """Why a run cannot be stopped, as a reason of the audit log; empty if it can."""
        if known is None:
            return "unwrapped"
        if known.ended is not None or not known.held:
            return "ended"
        mine = (each for each in self.audit.actions.values() if each.run == action.run and not each.dry_run)
        day = sum(time.time() - (each.acted or 0.0) < DAY_SECONDS for each in mine)
        return "per_day" if day >= self.limits.per_day and not action.dry_run else ""

    def _in_window(self, action: Action, alert: Alert) -> bool:
        """Whether a stop is announced and not vetoed; announce it first, and again where that may be lost."""
        now, began = time.time(), action.announced
        lost = began is None or not 0 <= now - began < self.limits.veto + LATE_SECONDS
        if not lost and self._stack.alertmanager_started() > (began or 0.0):
            lost = True  # it keeps no alert across a restart
        if not lost and (by := self._silenced_by(alert, began or now)):
            logger.info("action %s on %s: vetoed by a silence of %s", action.id, action.run, by)
            self._close(action, "vetoed", "silenced")
            return False
        if not self._announce(action, now if lost else began or now, fresh=lost):
            return False
        if lost:
            self.audit.append(now, "announced", action.id, deadline=now + self.limits.veto)
        return True

    def _silenced_by(self, alert: Alert, since: float) -> str:
        """Who silenced an alert at any time since a moment; empty if no one did."""
        now = time.time()
        found = (
            each.by or "someone"
            for each in self._stack.silences(alert.labels)
            if each.begin <= now and each.end > since
        )
        return next(found, "")

    def _announce(self, action: Action, begun: float, *, fresh: bool) -> bool:
        """Have Alertmanager show the announcement of a stop; whether it does."""
        moment = time.monotonic()
        if not fresh and moment - self._posted.get(action.id, -POST_SECONDS) < POST_SECONDS:
            return True
        deadline = begun + self.limits.veto
        pending = self._announcements.pending(action, begun, deadline, time.time() + EXPIRY_SECONDS)
        if posted := self._stack.post([pending]):
            self._posted[action.id] = moment
        return posted

    def review(self) -> None:
        """Close announced actions whose alert no longer comes: it ended, or someone silenced it."""
        with (
            self._lock,
            suppress(UnknownError, OSError),
        ):  # whatever is not known or written is reviewed again
            for action in self.audit.open():
                alert, heard = self._heard.setdefault(action.id, (_alert_of(action), time.monotonic()))
                if action.acted or time.monotonic() - heard < LOST_SECONDS:
                    continue
                state = self._stack.state(action.fingerprint)
                if action.announced and self._silenced_by(alert, action.announced):
                    self._close(action, "vetoed", "silenced")
                elif state != "active":
                    self._close(action, "dropped", "inhibited" if state else "resolved")

    def _start(self, action: Action, policy: Policy, step: str) -> None:
        """Begin a step in a thread of its own."""
        self.audit.append(time.time(), "intent", action.id, step=step)
        Thread(target=self._run, args=(action, policy, step), name=step, daemon=True).start()

    def _run(self, action: Action, policy: Policy, step: str) -> None:
        try:
            done = self._do(action, step)
            if step == STOP:
                if done and policy.kill_after is not None and not action.dry_run:
                    self._kill(action, policy.kill_after)
                with self._lock:
                    self._close(action, "failed" if action.failed else "done")
        except OSError as problem:
            logger.error("Action %s: cannot write the audit log: %s.", action.id, problem.strerror)  # noqa: TRY400

    def _do(self, action: Action, step: str) -> bool:
        """Do a step, and write down what came of it."""
        try:
            done, said = True, "dry run: not done" if action.dry_run else self._performed(action, step)
        except StepError as problem:
            done, said = False, str(problem)
        with self._lock:
            self.audit.append(
                time.time(), "result", action.id, step=step, done=done and not action.dry_run, text=safe(said)
            )
        logger.log(
            logging.INFO if done else logging.WARNING,
            "action %s on %s: %s: %s",
            action.id,
            action.run,
            step,
            said,
        )
        return done

    def _performed(self, action: Action, step: str) -> str:
        """Perform a step; return what was done. Raises StepError."""
        if step == EVIDENCE:
            return self._collected(action.run)
        if self.off:
            raise StepError("the kill switch is on")
        try:
            log = self._stack.log(action.run)
        except UnknownError as problem:
            raise StepError(str(problem)) from None
        known = launch.read(log) if log else None
        if log is None or known is None or known.attempt != action.attempt or known.ended is not None:
            raise StepError("the attempt that the alert is about has ended")
        why = f"{action.alert} ({action.id})"
        request = launch.Request(f"{action.id}-{step}", step, known.attempt, "stepwatch", why)
        try:
            launch.ask(log, request)
        except OSError as problem:
            raise StepError(f"{log.parent} cannot be written to: {problem.strerror}") from None
        until = time.monotonic() + ANSWER_SECONDS
        while (answer := launch.answers(log).get(request.id)) is None:
            if time.monotonic() > until:
                with suppress(OSError):  # so that no later reader finds it
                    log.with_name(log.name + launch.REQUEST_SUFFIX).unlink()
                raise StepError(f"the wrapper did not answer within {ANSWER_SECONDS:.0f} s")
            time.sleep(0.1)
        if not answer.done:
            raise StepError(f"the wrapper refused: {answer.reason}")
        return f"{launch.ACTIONS[step]} by its wrapper"

    def _kill(self, action: Action, after: float) -> None:
        """Kill a trainer that still runs after so many seconds."""
        until = time.monotonic() + after
        while time.monotonic() < until:
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
            with suppress(UnknownError):
                known = self._stack.launch(action.run)
                if known is None or known.ended is not None or known.attempt != action.attempt:
                    return
        with self._lock:
            self.audit.append(time.time(), "intent", action.id, step=KILL)
        self._do(action, KILL)

    def _collected(self, run: str) -> str:
        """Make the archive in a separate process, since reads may hang; return where it is."""
        try:
            done = subprocess.run(
                [*self._evidence, run],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EVIDENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StepError(f"not collected within {EVIDENCE_SECONDS:.0f} s") from None
        except OSError as problem:
            raise StepError(f"{self._evidence[0]}: {problem.strerror}") from None
        lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or [""]
        if done.returncode:
            raise StepError(lines[-1] or f"exit code {done.returncode}")
        return lines[-1]

    def _close(self, action: Action, outcome: str, reason: str = "") -> None:
        """Close an action, end its announcement and have receivers notified of the outcome."""
        self.audit.append(time.time(), "closed", action.id, outcome=outcome, reason=reason)
        logger.info("action %s on %s: %s %s", action.id, action.run, outcome, reason)
        if is_announced(action):
            Thread(target=self._report, args=(action,), name="report", daemon=True).start()

    def _report(self, action: Action) -> None:
        closed = action.closed or 0.0
        alerts = [self._announcements.taken(action)]
        if action.announced is not None:
            alerts.append(self._announcements.pending(action, action.announced, closed, closed))
        until = time.monotonic() + OUTCOME_SECONDS
        while not self._stack.post(alerts) and time.monotonic() < until:
            time.sleep(POST_SECONDS)


def _alert_of(action: Action) -> Alert:
    """What is known of an action's alert after a restart, until it comes again."""
    labels = {"alertname": action.alert, "severity": action.severity, "run": action.run}
    return Alert(labels, {}, firing=True, begun=action.opened, ended=0.0, fingerprint=action.fingerprint)

"""Delivers the queue of one channel: in order, within its robot's rate limit, with retries."""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from threading import Event, Thread

from exporter.notifier.channel import Ended, Outcome, Robot, SecretFileError, Secrets
from exporter.notifier.outbox import DELIVERED, FAILED, Entry, Notification, Outbox, parse
from exporter.notifier.wording import NOTHING_KNOWN, Card, Known, Wording

logger = logging.getLogger(__name__)
EXPIRY_SECONDS = 3 * 86400.0  # after which a message is given up, as failed
TEST_SECONDS = 60.0  # the same of a test, whose sender waits for its end
FIRST_PAUSE, MOST_PAUSE = 1.0, 300.0
REFUSED_PAUSE = 120.0
"""Between attempts while the channel's settings are at fault: NotificationFailures fires all the time."""
_MARGIN_SECONDS = 1.0  # by which requests of one minute may come closer on their way
_IDLE_SECONDS = 1.0
SECONDS_TO_STOP = 16.0  # that a request may take which is under way when the service ends
Ask = Callable[[Notification], "Known"]


class Counts:
    """What happened, by receiver in Alertmanager's words: ``(test) name`` apart from ``name``."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.retries: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()


class Delivery:
    """A channel in a thread of its own.

    ``ask`` tells what is known of an alert's run; it must not raise or block for long.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        robot: Robot,
        secrets: Secrets,
        *,
        outbox: Outbox,
        wording: Wording,
        ask: Ask = lambda _: NOTHING_KNOWN,
    ) -> None:
        self.name, self.kind = name, kind
        self.counts = Counts()
        self.problem: Outcome | None = None  # what the last attempt got, while messages wait because of it
        self.failure: tuple[Outcome, float] | None = None
        """The last attempt that failed, and when (Unix seconds)."""
        self._robot, self._secrets, self._outbox, self._wording = robot, secrets, outbox, wording
        self._ask = ask
        self._news, self._over = Event(), False
        self._resume, self._failed, self._changed = 0.0, 0, 0.0
        self._thread = Thread(target=self._run, name=f"deliver {name}", daemon=True)

    def start(self) -> None:
        """Deliver from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Check the queue at once."""
        self._news.set()

    def stop(self, seconds: float) -> None:
        """Make no more requests; waits this long for the current one."""
        self._over = True
        self._news.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._over:
            try:
                wait = self._step()
            except sqlite3.Error as problem:
                logger.error("Cannot use the queue: %s. The next attempt is in 10 s.", problem)  # noqa: TRY400
                wait = 10.0
            except Exception:  # an unforeseen one must not end deliveries
                logger.exception("A delivery to %s failed. The next attempt is in 60 s.", self.name)
                self._pause(60.0)
                wait = _IDLE_SECONDS
            if wait > 0:
                self._news.wait(min(wait, _IDLE_SECONDS))
                self._news.clear()

    def _step(self) -> float:
        """Make one request, if one is due; returns seconds until there may be another."""
        waiting = self._outbox.waiting(self.name)
        self._expire(waiting)
        now = time.time()
        if not waiting:
            self.problem = None
            return _IDLE_SECONDS
        paused = self._resume - time.monotonic()
        if paused > 0 and self._secrets.changed() <= self._changed:
            return paused
        free, wait, scarce = self._free(now)
        if wait > 0:
            return wait
        merged = (scarce or len(waiting) > free) and not waiting[0].alone
        batch = [entry for entry in waiting if not entry.alone] if merged else waiting[:1]
        return self._deliver(batch)

    def _deliver(self, batch: Sequence[Entry]) -> float:
        found = [parse(entry.payload)[0] for entry in batch]
        known = self._ask(found[0]) if len(batch) == 1 else NOTHING_KNOWN
        cards: list[Card] = [
            self._wording.card(each, entry.id, known) for each, entry in zip(found, batch, strict=True)
        ]
        message, held = self._robot.compose(cards)
        batch = batch[:held]
        self._changed = self._secrets.changed()
        address = self._secrets.address
        number = self._outbox.attempt(address, batch, time.time())
        try:
            outcome = self._robot.send(message)
        except SecretFileError as problem:
            outcome = Outcome("secret_file", str(problem))
        self._outbox.attempted(number, time.time())
        self.counts.requests[self.name] += 1
        if outcome.ended is not Ended.DELIVERED:
            self.failure = outcome, time.time()
        self._note(batch, found[:held], outcome)
        return 0.0

    def _note(self, batch: Sequence[Entry], found: Sequence[Notification], outcome: Outcome) -> None:
        """Record the outcome of an attempt, and schedule the next one."""
        if outcome.ended is Ended.DELIVERED:
            self._outbox.end(batch, DELIVERED, "", outcome.text)
            if self.problem is not None:
                logger.info("%s (%s) accepts messages again.", self.name, self.kind)
            self.problem, self._failed, self._resume = None, 0, 0.0
            for entry, each in zip(batch, found, strict=True):
                self.counts.delivered[each.receiver] += 1
                self.counts.seconds[each.receiver] += max(0.0, time.time() - entry.received)
            return
        tests = [entry for entry, each in zip(batch, found, strict=True) if each.is_test]
        others = [entry for entry in batch if entry not in tests]
        if outcome.ended is Ended.REJECTED:
            if len(batch) > 1:  # one of them is at fault: each is sent by itself
                self._outbox.keep(batch, outcome.reason, outcome.text, alone=True)
                return
            self._fail(batch, outcome)
            return
        if outcome.ended is Ended.REFUSED:
            self._fail(tests, outcome)
            self._count_failures(others, outcome)
            self._outbox.keep(others, outcome.reason, outcome.text)
            pause = REFUSED_PAUSE if others else 0.0
        else:
            for each in found:
                self.counts.retries[each.receiver, outcome.reason] += 1
            self._outbox.keep(batch, outcome.reason, outcome.text)
            self._failed += 1
            backoff = min(FIRST_PAUSE * 2 ** min(self._failed - 1, 16), MOST_PAUSE)
            pause = max(outcome.pause, backoff * random.uniform(0.5, 1.0))  # noqa: S311  (no secret)
        if others or outcome.ended is Ended.RETRY:
            if self.problem is None or self.problem.reason != outcome.reason:
                logger.warning(
                    "%s (%s) did not accept a message (%s): %s The next attempt is in %.0f s.",
                    self.name,
                    self.kind,
                    outcome.reason,
                    outcome.text if outcome.text.endswith((".", "!", "。")) else f"{outcome.text}.",
                    pause,
                )
            self.problem = outcome
        self._pause(pause)

    def _pause(self, seconds: float) -> None:
        self._resume = time.monotonic() + seconds

    def _fail(self, entries: Sequence[Entry], outcome: Outcome) -> None:
        """Take messages out of the queue that will not be delivered."""
        if not entries:
            return
        self._count_failures(entries, outcome)
        self._outbox.end(entries, FAILED, outcome.reason, outcome.text)
        logger.error(
            "%s (%s): %d messages are not delivered (%s): %s",
            self.name,
            self.kind,
            len(entries),
            outcome.reason,
            outcome.text,
        )

    def _count_failures(self, entries: Sequence[Entry], outcome: Outcome) -> None:
        for entry in entries:
            self.counts.failures[f"(test) {self.name}" if entry.test else self.name, outcome.reason] += 1

    def _expire(self, waiting: list[Entry]) -> None:
        now = time.time()
        late = [
            entry
            for entry in waiting
            if now - entry.received > (TEST_SECONDS if entry.test else EXPIRY_SECONDS)
        ]
        for entry in late:
            # A message without an attempt waited for the cause that delays the channel.
            known = self.problem or Outcome("expired", "delayed by the robot's rate limit")
            reason = (entry.reason or known.reason) if entry.test else "expired"
            summary = f"given up after {now - entry.received:.0f} s; last: {entry.answer or known.text}"
            self._fail([entry], Outcome(reason, summary))
            waiting.remove(entry)

    def _free(self, now: float) -> tuple[int, float, bool]:
        """How many requests may be made now, seconds until the next, whether few are left.

        In the lower half of a limit requests are spaced evenly: one used up at once would hold back the next
        alert for a minute.
        """
        free, wait, scarce = 1 << 30, 0.0, False
        for most, seconds in self._robot.windows:
            span = seconds + _MARGIN_SECONDS * (seconds > _MARGIN_SECONDS)
            made = self._outbox.attempts(self._secrets.address, now - span, now)
            left = most - len(made)
            if left <= 0:
                wait = max(wait, made[-most] + span - now)
            elif left <= most // 2 and seconds > _MARGIN_SECONDS:
                # As many as are left, until the oldest request counts no more.
                scarce, wait = True, max(wait, made[-1] + (made[0] + span - made[-1]) / left - now)
            free = min(free, left)
        return free, wait, scarce

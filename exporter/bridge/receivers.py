"""Receivers of chats: each notification is one request to a robot, answered by what the robot says.

Nothing is stored: Alertmanager keeps what is not taken, and sends it again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from exporter.bridge.robots import KINDS, LATER, NEVER, REASONS, TAKEN, Kind, Outcome, Robot
from exporter.bridge.webhook import Notification
from exporter.bridge.words import Words
from exporter.http.exposition import Metric, Sample, own

logger = logging.getLogger("exporter.bridge")

WAITING_SECONDS = 180.0
"""After which a group that does not come again waits no more: Alertmanager retries within 90 s."""
AGAIN_SECONDS = 60.0
"""Within which the same change of a group is a retry of a request whose answer Alertmanager did not read."""
SAID_SECONDS = 900.0
"""For how long metrics show a robot's words: the alert looks back 5 minutes and lasts 10 longer."""
_MARGIN_SECONDS = 1.0  # by which requests of one minute may come closer on their way
_TURN_SECONDS = 3.0
TEST = "(test) "
"""Begins Alertmanager's names of the receivers of test messages."""
ACTIONS = "(actions)"
"""Alertmanager's receiver that triggers actions; begins those of their announcements."""


class Pace:
    """Limits the requests to one robot, which may serve several receivers."""

    def __init__(self, kind: Kind, clock: Callable[[], float] = time.monotonic) -> None:
        self.turn = Lock()
        self._clock, self._until = clock, 0.0
        # A restart may follow a burst, and one message is held back for the next: a robot that blocks
        # a sender over its limit gets one at once, and the others when a whole window is over.
        blocks = kind.blocked > 60
        self._windows = [
            (most - blocks, seconds + _MARGIN_SECONDS * (seconds > 1), deque([clock()] * (most - 2) * blocks))
            for most, seconds in kind.windows
        ]

    def wait(self) -> float:
        """Seconds until the next request may be made; 0 for now."""
        now = self._clock()
        wait = self._until - now
        for most, seconds, sent in self._windows:
            while sent and now - sent[0] >= seconds:
                sent.popleft()
            if len(sent) >= most:
                wait = max(wait, sent[0] + seconds - now)
        return max(0.0, wait)

    def sent(self, pause: float) -> None:
        """Count a request that has just ended; ``pause`` seconds no other follows."""
        now = self._clock()
        self._until = max(self._until, now + pause)
        for _, _, sent in self._windows:
            sent.append(now)


class Receiver:
    """A receiver of config.yaml and its robot; ``paces`` are those of all robots, by address."""

    def __init__(self, name: str, robot: Robot, words: Words, paces: dict[str, Pace]) -> None:
        self.name, self.robot = name, robot
        self.counts: Counter[tuple[str, str]] = Counter()
        """By Alertmanager's name of the receiver and the reason, which is empty for what was taken."""
        self.last: tuple[Outcome, float] | None = None
        """The robot's last answer, and when (Unix seconds)."""
        self._words, self._paces = words, paces
        self._taken: dict[str, tuple[str, float]] = {}
        self._waiting: dict[str, tuple[float, float, bool]] = {}
        """By group: since when it waits, when it was last seen (Unix seconds), and whether it is critical."""
        self._failing = ""
        self._lock = Lock()

    def deliver(self, notification: Notification) -> Outcome:
        """Have the robot take a notification, or say why it does not."""
        group, change, now = notification.group, notification.change, time.time()
        with self._lock:
            self._taken = {key: of for key, of in self._taken.items() if now - of[1] < AGAIN_SECONDS}
            if self._taken.get(group, ("", 0.0))[0] == change:
                return Outcome(said="the robot has just taken this")
        outcome = self._ask(notification)
        with self._lock:
            self.counts[notification.receiver, outcome.reason] += 1
            since = self._waiting.pop(group, (now, now, False))[0]
            if outcome.status == TAKEN:
                self._taken[group] = change, time.time()
            elif outcome.status == LATER and not notification.receiver.startswith(TEST):
                self._waiting[group] = since, time.time(), notification.state == "critical"
        return outcome

    def _ask(self, notification: Notification) -> Outcome:
        if (pace := self._paces.get(address := self.robot.address)) is None:
            pace = self._paces.setdefault(address, Pace(KINDS[self.robot.kind]))
        critical = notification.state == "critical"
        if not critical and any(urgent for _, _, urgent in self._still()):
            return Outcome("queue", "critical alerts go first")
        if wait := pace.wait():
            return Outcome("queue", f"the robot's limit is used up for {wait:.0f} s")
        message = self.robot.compose(self._words.card(notification), self._words)
        if not pace.turn.acquire(timeout=_TURN_SECONDS):
            return Outcome("queue", "another message is on its way")
        try:
            if wait := pace.wait():
                return Outcome("queue", f"the robot's limit is used up for {wait:.0f} s")
            outcome = self.robot.send(message)
            pace.sent(outcome.pause)
        finally:
            pace.turn.release()
        self.last = outcome, time.time()
        if outcome.reason != self._failing:
            level = logging.WARNING if outcome.reason else logging.INFO
            logger.log(
                level, "%s (%s): %s %s", self.name, self.robot.kind, outcome.reason or "taken:", outcome.said
            )
            self._failing = outcome.reason
        return outcome

    def _still(self) -> list[tuple[float, float, bool]]:
        """The groups that wait, without those that Alertmanager gave up."""
        now = time.time()
        with self._lock:
            self._waiting = {key: of for key, of in self._waiting.items() if now - of[1] < WAITING_SECONDS}
            return list(self._waiting.values())

    def oldest(self) -> float:
        """Seconds since the first attempt for what has waited longest; 0 if nothing waits."""
        return max((time.time() - since for since, _, _ in self._still()), default=0.0)


def samples(receivers: Mapping[str, Receiver]) -> Iterator[Metric]:
    """The metrics of all receivers, under Alertmanager's names of them."""
    taken: list[Sample] = []
    deferred: list[Sample] = []
    refused: list[Sample] = []
    waiting: list[Sample] = []
    said: list[Sample] = []
    # Alertmanager counts what waits here as failed, actions too; before 0.27 it names no receivers.
    served: list[Sample] = [({"integration": "webhook", "receiver_name": name}, 1) for name in ("", ACTIONS)]
    for name, receiver in receivers.items():
        kind = receiver.robot.kind
        for shown in (name, f"{TEST}{name}", f"{ACTIONS} {name}"):
            labels = {"receiver_name": shown, "integration": kind}
            served.append(({"integration": "webhook", "receiver_name": shown}, 1))
            taken.append((labels, receiver.counts[shown, ""]))
            for reason in REASONS:
                never = Outcome(reason).status == NEVER
                sample = {**labels, "reason": reason}, receiver.counts[shown, reason]
                (refused if never else deferred).append(sample)
        waiting.append(({"receiver_name": name, "integration": kind}, receiver.oldest()))
        if receiver.last and receiver.last[0].reason and time.time() - receiver.last[1] < SAID_SECONDS:
            outcome = receiver.last[0]
            labels = {
                "receiver_name": name,
                "integration": kind,
                "reason": outcome.reason,
                "text": outcome.said,
            }
            said.append((labels, 1))
    yield own("bridge_taken_total", "Notifications that a robot took.", taken)
    yield own("bridge_deferred_total", "Requests of Alertmanager answered 503, by reason.", deferred)
    yield own("bridge_refused_total", "Requests of Alertmanager answered 400, by reason.", refused)
    yield own("bridge_waiting_seconds", "Age of the oldest notification that waits for a robot.", waiting)
    yield own("bridge_error_info", "A robot's last answer, for 15 minutes after an error.", said)
    yield own(
        "bridge_receiver_info",
        "Receivers whose failures Alertmanager counts and this service explains.",
        served,
    )

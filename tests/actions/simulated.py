"""Runs, alerts and what goes wrong with them, simulated: everything around the decisions of the breaker."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.actions.audit import Audit
from exporter.actions.breaker import OFF, Breaker
from exporter.actions.messages import Messages
from exporter.actions.policy import (
    DAY_SECONDS,
    Action,
    Alert,
    Attempt,
    Limits,
    NotifiedAlert,
    Result,
    Rule,
    Seen,
)

COOLDOWN, PER_DAY, HOLD = 300.0, 2, 30.0
RULES = (
    Rule("KLExplosion", "critical", HOLD, re.compile(".*"), ("evidence", "notify", "stop"), 30.0),
    Rule("RewardCollapse", "", HOLD, re.compile(".*"), ("stop",)),
    Rule("KLHigh", "", 0.0, re.compile(".*"), ("evidence", "notify")),
)
CHANGES = ("stop", "kill")


class Crash(BaseException):
    """The process is killed, here and now."""


@dataclass
class Run:
    """A run; ``wrapped`` tells whether `stepwatch run` started it."""

    name: str
    wrapped: bool = True
    number: int = 1
    started: float = 0.0
    alive: bool = True


@dataclass
class Sickness:
    """An alert about a run: whether its condition holds, since when it fires, and whether it is silenced.

    ``known`` tells whether Alertmanager has it.
    """

    name: str
    run: Run
    holds: bool = False
    since: float | None = None
    muted: bool = False
    known: bool = False

    @property
    def alert(self) -> Alert:
        labels = {"alertname": self.name, "run": self.run.name, "severity": "critical"}
        return Alert(f"{self.name}-{self.run.name}", labels, self.since or 0.0)


@dataclass
class Effect:
    """A change of a run that was really made."""

    action: str
    step: str
    cause: tuple[str, str, int]
    run: str
    time: float


class CrashingAudit(Audit):
    """The real log, before or after each line of which the process may be killed."""

    crash: Any = staticmethod(lambda: False)

    def append(self, time: float, event: str, action: str = "", **fields: Any) -> None:
        if self.crash():
            raise Crash
        super().append(time, event, action, **fields)
        if self.crash():
            raise Crash


@dataclass
class World:
    """All that there is; ``broken`` collects what must never happen."""

    folder: Path
    chance: random.Random
    now: float = 1_000_000.0
    veto_seconds: float = 60.0
    crash_chance: float = 0.0
    prometheus: bool = True
    alertmanager: bool = True
    exporter: bool = True
    meanwhile: Callable[[], None] = lambda: None
    in_step: bool = False
    runs: list[Run] = field(default_factory=list)
    ills: list[Sickness] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    announced: dict[str, float] = field(default_factory=dict)
    vetoed: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    breaker: Breaker | None = None
    starts: int = 0

    def __post_init__(self) -> None:
        self.runs = [Run("a"), Run("b"), Run("tee", wrapped=False)]
        self.ills = [Sickness(rule.on, run) for rule in RULES for run in self.runs]
        self.start()

    # What the breaker asks.

    def refresh(self) -> None:
        """Answers are of this moment until the next ones, whatever happens meanwhile."""
        firing = {ill.alert.fingerprint for ill in self.ills if ill.holds and ill.since is not None}
        muted = {ill.alert.fingerprint: ill.muted for ill in self.ills if ill.known}
        self._firing = firing if self.prometheus else None
        self._muted = muted if self.alertmanager else {}
        self._logs = self.exporter

    def look(self, alert: Alert) -> Seen:
        run = next(each for each in self.runs if each.name == alert.run)
        holds = None if self._firing is None else alert.fingerprint in self._firing
        muted = self._muted.get(alert.fingerprint)
        if holds and muted is None:
            holds = None
        if not self._logs:
            return Seen(holds, bool(muted), None, False, "unwrapped")
        if not run.wrapped:
            return Seen(holds, bool(muted), Attempt("", int(alert.since), 0.0), False, "unwrapped")
        attempt = Attempt(f"log {run.name}", run.number, run.started)  # read beside the log at each look
        return Seen(holds, bool(muted), attempt, run.alive, "" if run.alive else "ended")

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        if not self.alertmanager:
            return False
        for alert in alerts:
            if alert["labels"]["alertname"] == "ActionPending":
                self.announced.setdefault(alert["labels"]["action"], self.now)
        return True

    def perform(self, step: str, action: Action) -> Result:
        if self.crashes():
            raise Crash
        if step in CHANGES:
            self._change(step, action)
        if self.crashes():
            raise Crash
        if not self.in_step:
            self.in_step = True
            try:
                self.meanwhile()
            finally:
                self.in_step = False
        return Result(self.chance.random() < 0.9, step)

    def crashes(self) -> bool:
        return self.chance.random() < self.crash_chance

    def _change(self, step: str, action: Action) -> None:
        """The run is changed: this is where it must have been right."""
        run = next(each for each in self.runs if each.name == action.run)
        ill = next(each for each in self.ills if each.alert.fingerprint == action.fingerprint)
        assert self.breaker is not None
        cause = (action.fingerprint, run.name, action.attempt.number)
        before = [
            each
            for each in self.effects
            if each.cause == cause and (each.step == step or each.action != action.id)
        ]
        wrong = {
            "a second action for one cause": bool(before),
            "a run without a wrapper": not run.wrapped,
            "another attempt": run.number != action.attempt.number or not run.alive,
            "the kill switch is on": (self.folder / OFF).exists(),
            "a healthy run": step != "kill" and not ill.holds,
            "a silenced alert": step != "kill" and ill.muted,
            "an alert that ended": step != "kill" and ill.since != action.since,
            "an alert older than the service": action.since < self.breaker.started,
            "an alert older than the attempt": action.since <= run.started,
            "held too short": step != "kill" and self.now - action.since < HOLD,
            "vetoed": action.id in self.vetoed,
            "not announced in time": self.now - self.announced.get(action.id, self.now) < self.veto_seconds,
            "no intent on the disk": not self._on_disk(action.id, step),
            "a kill without a stop": step == "kill"
            and not any(each.cause == cause and each.step == "stop" for each in self.effects),
        }
        if step != "kill":
            others = {each.action: each for each in self.effects if each.action != action.id}
            same = [each for each in others.values() if each.run == run.name]
            wrong["cool-down"] = any(self.now - each.time < COOLDOWN for each in same)
            wrong["too many a day"] = sum(self.now - each.time < DAY_SECONDS for each in same) >= PER_DAY
        self.broken += [f"{step} of {run.name} at {self.now}: {what}" for what, so in wrong.items() if so]
        self.effects.append(Effect(action.id, step, cause, run.name, self.now))
        if step == "kill" or (step == "stop" and self.chance.random() < 0.4):
            run.alive = False

    def _on_disk(self, action: str, step: str) -> bool:
        return any(
            each["event"] == "intent" and each["action"] == action and each["step"] == step
            for each in self.audit()
        )

    def audit(self) -> list[dict[str, Any]]:
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line]

    # What happens.

    def start(self) -> None:
        """Start the service again; it dies at the start as well as anywhere."""
        while True:
            audit = CrashingAudit(self.folder)
            audit.crash = self.crashes
            self.starts += 1
            self.now += 1
            try:
                self.breaker = Breaker(
                    RULES,
                    Limits(False, self.veto_seconds, PER_DAY, COOLDOWN),
                    audit=audit,
                    stack=self,
                    perform=self.perform,
                    messages=Messages("http://127.0.0.1:9413"),
                    clock=lambda: self.now,
                    spawn=lambda do: do(),
                )
            except Crash:
                audit.close()
                continue
            self.send()
            return

    def stop(self) -> None:
        assert self.breaker is not None
        self.breaker.audit.close()
        self.breaker = None

    def send(self) -> None:
        """Alertmanager repeats what fires."""
        assert self.breaker is not None
        fire = [ill for ill in self.ills if ill.since is not None]
        for ill in fire:
            ill.known = True
        self.breaker.receive([NotifiedAlert(ill.alert, firing=True) for ill in fire])

    def forget(self) -> None:
        """Alertmanager starts without its alerts, until Prometheus sends them again."""
        for ill in self.ills:
            ill.known = False

    def survive(self, what: Any) -> None:
        """Do something with the service, which is started again if it is killed at that."""
        try:
            what()
        except Crash:
            if self.in_step:  # in the middle of another tick, which ends as well
                raise
            self.stop()
            self.start()

    def tick(self) -> None:
        assert self.breaker is not None
        self.survive(self.breaker.tick)

    def sicken(self) -> None:
        ill = self.chance.choice(self.ills)
        ill.holds = True
        if ill.since is None and ill.run.alive:
            ill.since, ill.known = self.now, True
            assert self.breaker is not None
            self.breaker.receive([NotifiedAlert(ill.alert, firing=True)])

    def _firing_one(self) -> Sickness:
        return self.chance.choice([ill for ill in self.ills if ill.since is not None] or self.ills)

    def linger(self) -> None:
        """The condition is over; the alert fires on."""
        self._firing_one().holds = False

    def resolve(self) -> None:
        ill = self._firing_one()
        if ill.since is not None:
            assert self.breaker is not None
            alert, told = ill.alert, self.chance.random() < 0.8
            ill.holds, ill.since, ill.known = False, None, False
            if told:
                self.breaker.receive([NotifiedAlert(alert, firing=False)])

    def silence(self) -> None:
        ill = self._firing_one()
        ill.muted = not ill.muted and self.chance.random() < 0.5

    def restart_run(self) -> None:
        run = self.chance.choice(self.runs)
        run.number, run.started, run.alive = run.number + 1, self.now, True

    def veto(self) -> None:
        assert self.breaker is not None
        open_ = self.breaker.audit.open()
        if open_:
            action = self.chance.choice(open_)
            breaker = self.breaker

            def do() -> None:
                if breaker.veto(action.id, "someone"):
                    self.vetoed.add(action.id)

            self.survive(do)

    def switch(self) -> None:
        file = self.folder / OFF
        if file.exists():
            file.unlink()
        elif self.chance.random() < 0.5:
            file.touch()

    def lose(self) -> None:
        self.prometheus, self.alertmanager, self.exporter = (self.chance.random() < 0.8 for _ in range(3))

    def restart(self) -> None:
        self.stop()
        self.start()

    def pass_time(self) -> None:
        self.now += self.chance.choice([1, 5, 20, 31, 31, 31, 65, 65, 65, 65, 300, 3000])

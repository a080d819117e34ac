"""Each guard rail by itself: what is due about an alert, and why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.actions.audit import Audit, AuditError, opening
from exporter.actions.breaker import OFF, Breaker
from exporter.actions.messages import Messages
from exporter.actions.policy import (
    DAY_SECONDS,
    LATE_SECONDS,
    Action,
    Alert,
    Attempt,
    Decision,
    Limits,
    NotifiedAlert,
    Result,
    Rule,
    Seen,
    to_go_on,
    to_open,
)

RULE = Rule("KLExplosion", "critical", 120.0, re.compile("ppo/.*"), ("evidence", "stop"), 60.0)
LIMITS = Limits(dry_run=False, veto=300.0, per_day=3, cooldown=1800.0)
ALERT = Alert("f", {"alertname": "KLExplosion", "severity": "critical", "run": "ppo/a"}, 1000.0)
ATTEMPT = Attempt("log /runs/a.log", 2, 500.0)
SICK = Seen(holds=True, attempt=ATTEMPT, alive=True)
ACTION = Action(
    "id", "ppo/a", "KLExplosion", "critical", "f", 1000.0, ATTEMPT, ("evidence", "stop"), 60.0, False, 1200.0
)
COLLECTED = {"evidence": Result(True, "a.tar.zst")}
ANNOUNCED = replace(ACTION, announced=1200.0, deadline=1500.0, results=COLLECTED)
STOPPED = replace(ANNOUNCED, acted=1500.0, results={**COLLECTED, "stop": Result(True, "SIGTERM")})


def opens(seen: Seen = SICK, *others: Action, **more: Any) -> Decision:
    """What is decided after actions about other alerts on the run."""
    known = {"off": False, "started": 900.0, "held": 1000.0, "now": 1200.0, **more}
    others = tuple(replace(each, fingerprint="other") for each in others)
    return to_open(RULE, LIMITS, ALERT, seen, others, **known)


def goes_on(action: Action, seen: Seen = SICK, now: float = 1200.0, *, off: bool = False) -> Decision:
    return to_go_on(action, seen, off=off, now=now)


def test_a_policy_is_for_one_alert_of_one_severity_and_for_the_runs_that_its_pattern_fits() -> None:
    assert RULE.fits(ALERT.labels)
    for other in ({"alertname": "KLHigh"}, {"severity": "warning"}, {"run": "sft/a"}, {"run": "x/ppo/a"}):
        assert not RULE.fits({**ALERT.labels, **other})
    assert replace(RULE, severity="").fits({**ALERT.labels, "severity": "warning"})


@pytest.mark.parametrize(
    ("seen", "more", "expected"),
    [
        (SICK, {}, Decision("open")),
        (SICK, {"off": True}, Decision("ignore", "switched_off")),
        (SICK, {"started": 1001.0}, Decision("ignore", "older")),
        (replace(SICK, attempt=ATTEMPT._replace(started=1000.0)), {}, Decision("ignore", "new_attempt")),
        (replace(SICK, holds=False), {}, Decision("wait")),
        (replace(SICK, holds=None), {}, Decision("wait")),
        (replace(SICK, muted=True), {}, Decision("wait")),
        (replace(SICK, attempt=None), {}, Decision("wait")),
        (SICK, {"now": 1119.0}, Decision("wait")),
        (SICK, {"held": 1100.0}, Decision("wait")),
    ],
)
def test_an_action_is_opened_only_about_an_alert_that_holds_long_enough_and_is_about_this_attempt(
    seen: Seen, more: dict[str, Any], expected: Decision
) -> None:
    assert opens(seen, **more) == expected


def test_after_an_action_or_its_veto_a_run_is_left_alone_for_the_cooldown() -> None:
    now, acted = 10_000.0, replace(STOPPED, outcome="done", closed=9000.0, acted=9000.0)
    vetoed = replace(ANNOUNCED, outcome="vetoed", closed=9000.0)
    dropped = replace(ANNOUNCED, outcome="dropped", closed=9000.0)

    assert [opens(SICK, each, now=now).what for each in (acted, vetoed, dropped)] == ["cooldown"] * 2 + [""]
    assert opens(SICK, acted, vetoed, now=9000.0 + 1801) == Decision("open")


def test_no_second_action_is_opened_while_one_on_the_run_is_open() -> None:
    assert opens(SICK, ANNOUNCED) == Decision("wait", "another_open")


def test_a_run_is_acted_on_only_so_often_within_a_day() -> None:
    now = 200_000.0
    acted = [
        replace(STOPPED, outcome="done", acted=now - ago)
        for ago in (1801, 5000, DAY_SECONDS - 1, DAY_SECONDS)
    ]

    assert opens(SICK, *acted[:3], now=now) == Decision("wait", "per_day")
    assert opens(SICK, *acted[:2], acted[3], now=now) == Decision("open")


@pytest.mark.parametrize(
    ("action", "seen", "now", "expected"),
    [
        (ACTION, SICK, 1200, Decision("do", "evidence")),
        (replace(ACTION, results=COLLECTED), SICK, 1200, Decision("announce")),
        (ANNOUNCED, SICK, 1499, Decision("wait")),
        (ANNOUNCED, SICK, 1500, Decision("do", "stop")),
        (ANNOUNCED, replace(SICK, holds=None), 1500, Decision("wait")),
        (ANNOUNCED, replace(SICK, holds=False), 1300, Decision("close", "dropped", "resolved")),
        (ANNOUNCED, replace(SICK, muted=True), 1300, Decision("close", "dropped", "muted")),
        (
            ANNOUNCED,
            replace(SICK, attempt=ATTEMPT._replace(number=3)),
            1500,
            Decision("close", "dropped", "new_attempt"),
        ),
        (ANNOUNCED, replace(SICK, alive=False, why="ended"), 1500, Decision("close", "refused", "ended")),
        (ANNOUNCED, SICK, 1501 + LATE_SECONDS, Decision("close", "dropped", "unconfirmed")),
        (replace(ANNOUNCED, vetoed=True), SICK, 1500, Decision("close", "vetoed", "by_hand")),
        (
            replace(ANNOUNCED, step="stop", acted=1500.0),
            SICK,
            1501,
            Decision("close", "interrupted", "unknown"),
        ),
        (STOPPED, SICK, 1559, Decision("wait")),
        (STOPPED, SICK, 1560, Decision("do", "kill")),
        (STOPPED, replace(SICK, holds=False), 1560, Decision("do", "kill")),
        (STOPPED, replace(SICK, alive=False), 1560, Decision("close", "done")),
        (STOPPED, replace(SICK, attempt=ATTEMPT._replace(number=3)), 1560, Decision("close", "done")),
        (replace(STOPPED, vetoed=True), SICK, 1560, Decision("close", "done")),
        (replace(STOPPED, kill_after=None), SICK, 1560, Decision("close", "done")),
        (replace(STOPPED, dry_run=True), SICK, 1560, Decision("close", "done")),
        (
            replace(STOPPED, results={"stop": Result(False, "no")}),
            SICK,
            1560,
            Decision("close", "failed"),
        ),
    ],
)
def test_an_action_goes_on_step_by_step_and_ends_where_its_reason_does(
    action: Action, seen: Seen, now: float, expected: Decision
) -> None:
    assert goes_on(action, seen, now) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [(ANNOUNCED, Decision("close", "dropped", "switched_off")), (STOPPED, Decision("close", "done"))],
)
def test_the_kill_switch_ends_every_action(action: Action, expected: Decision) -> None:
    assert goes_on(action, SICK, 1700.0, off=True) == expected


class Around:
    """A breaker at a time of its own; ``done`` are the steps that it did, ``posted`` what it announced.

    Steps are over at once; if they are ``slow``, when ``apart`` is called. It knows what is ``seen`` when it
    asks.
    """

    def __init__(
        self, folder: Path, rule: Rule = RULE, limits: Limits = LIMITS, *, slow: bool = False
    ) -> None:
        self.folder, self.now, self.seen, self.slow = folder, 900.0, SICK, slow
        self.takes_posts, self.fails, self.succeeds = True, False, True
        self.meanwhile: Callable[[], None] = lambda: None
        self.done: list[str] = []
        self.posted: list[dict[str, Any]] = []
        self.apart: list[Callable[[], None]] = []
        self.breaker = Breaker(
            [rule],
            limits,
            audit=Audit(folder),
            stack=self,
            perform=self.perform,
            messages=Messages("http://127.0.0.1:9413"),
            clock=lambda: self.now,
            spawn=lambda do: self.apart.append(do) if self.slow else do(),
        )

    def refresh(self) -> None:
        self.known = self.seen

    def look(self, _: Alert) -> Seen:
        return self.known

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        self.posted += alerts if self.takes_posts else []
        return self.takes_posts

    def perform(self, step: str, _: Action) -> Result:
        if self.fails:
            raise OSError("this was not foreseen")
        self.done.append(step)
        self.meanwhile()
        return Result(self.succeeds, step)

    def at(self, now: float, *, firing: bool | None = None) -> Around:
        self.now = now
        if firing is not None:
            self.fire(ALERT, firing=firing)
        self.breaker.tick()
        return self

    def fire(self, *alerts: Alert, firing: bool = True) -> Around:
        self.breaker.receive([NotifiedAlert(alert, firing) for alert in alerts])
        return self

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Of all actions, the oldest first."""
        return [(each.outcome, each.reason) for each in reversed(self.breaker.actions())]

    @property
    def ignored(self) -> list[str]:
        """Why alerts were left alone, as the audit log says it."""
        lines = map(json.loads, (self.folder / "audit.jsonl").read_text().splitlines())
        return [each["reason"] for each in lines if each["event"] == "ignored"]


def test_the_veto_window_begins_only_once_alertmanager_has_the_announcement(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.takes_posts = False
    around.at(1120, firing=True).at(1500)
    around.takes_posts = True
    around.at(1600).at(1899)

    assert around.done == ["evidence"]
    assert around.at(1900).done == ["evidence", "stop"]
    assert around.breaker.failures["post"] >= 2


def test_what_came_while_the_kill_switch_was_on_is_not_made_up_for_later(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.breaker.switch_off()
    around.at(1120, firing=True)
    (tmp_path / OFF).unlink()

    assert around.at(1200, firing=True).at(2000, firing=True).done == []


def test_the_kill_switch_counts_even_after_the_intent(tmp_path: Path) -> None:
    around = Around(tmp_path)
    append = around.breaker.audit.append

    def off_after_intent(time: float, event: str, action: str = "", **fields: Any) -> None:
        append(time, event, action, **fields)
        if event == "intent":
            (tmp_path / OFF).touch()

    around.breaker.audit.append = off_after_intent  # type: ignore[method-assign]
    around.at(1120, firing=True)

    assert around.done == []
    assert [action.outcome for action in around.breaker.actions()] == ["dropped"]


def test_evidence_about_one_run_holds_up_no_other_and_four_archives_are_made_at_once(tmp_path: Path) -> None:
    around = Around(tmp_path, slow=True)
    alerts = [
        ALERT._replace(fingerprint=name, labels={**ALERT.labels, "run": f"ppo/{name}"}) for name in "abcdef"
    ]
    around.fire(*alerts).at(1120).at(1130)
    assert [len(around.apart), len(around.breaker.audit.open())] == [4, 6]
    for _ in alerts:
        around.apart.pop(0)()
        around.at(around.now + 30)

    assert around.done == ["evidence"] * 6
    announced = {each["labels"]["run"] for each in around.posted}
    assert announced == {alert.run for alert in alerts}


def flaps(around: Around, since: float) -> None:
    """The alert is announced, ends, and begins anew in the same attempt."""
    around.at(around.now, firing=True).at(1120).at(1200, firing=False)
    around.fire(ALERT._replace(since=since)).at(since + 120)


def test_an_alert_that_fires_again_is_another_cause_if_the_action_before_changed_nothing(
    tmp_path: Path,
) -> None:
    around = Around(tmp_path)
    flaps(around, 1300.0)

    assert around.at(1720).done == ["evidence", "evidence", "stop"]
    assert around.outcomes == [("dropped", "resolved"), ("", "")]


def test_a_condition_that_holds_again_before_its_alert_has_ended_is_another_cause_too(tmp_path: Path) -> None:
    around = Around(tmp_path)
    around.at(1120, firing=True)
    around.seen = replace(SICK, holds=False)
    around.at(1130).at(1150)
    around.seen = SICK
    around.at(1151)

    assert around.at(1269).done == ["evidence"]
    assert around.at(1270).at(1570).done == ["evidence", "evidence", "stop"]


@pytest.mark.parametrize("ends", ["stopped", "vetoed"])
def test_what_acted_or_was_vetoed_stands_and_a_later_firing_is_left_alone_and_said_to_be_once(
    tmp_path: Path, ends: str
) -> None:
    around = Around(tmp_path, limits=replace(LIMITS, cooldown=0.0))
    around.at(1120, firing=True)
    if ends == "vetoed":
        around.breaker.veto(around.breaker.actions()[0].id, "someone")
    around.at(1420).at(1500)
    done = list(around.done)
    for since in (2000.0, 5000.0):
        around.fire(ALERT._replace(since=since))
        around.at(since + 120).at(since + 121).at(since + 500)

    assert around.done == done
    assert around.ignored == ["already", "already"]
    assert len(around.breaker.actions()) == 1


def test_what_a_restart_interrupted_before_it_changed_anything_is_done_about_a_later_firing(
    tmp_path: Path,
) -> None:
    around = Around(tmp_path)
    around.at(1120, firing=True)
    around.breaker.audit.close()
    again = Around(tmp_path)
    again.at(1200, firing=True)
    again.fire(ALERT._replace(since=1300.0)).at(1420)

    assert again.at(1720).done == ["evidence", "stop"]
    assert again.outcomes == [("interrupted", "restarted"), ("", "")]


def test_what_was_dropped_does_not_count_for_the_day_and_what_acted_does(tmp_path: Path) -> None:
    around = Around(tmp_path, limits=replace(LIMITS, per_day=1))
    flaps(around, 1300.0)
    around.at(1720)
    around.seen = replace(SICK, attempt=ATTEMPT._replace(number=3, started=5000.0))
    around.fire(ALERT._replace(since=6000.0)).at(9000)

    assert around.done == ["evidence", "evidence", "stop"]
    assert len(around.breaker.actions()) == 2


def test_half_a_line_of_a_full_disk_spoils_no_other(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.append(1.0, "opened", "id", **opening(ACTION))
    audit.close()
    with audit.path.open("ab") as file:
        file.write(b'{"time": 2.0, "event": "clo')
    again = Audit(tmp_path)
    again.append(3.0, "closed", "id", outcome="done", reason="")
    again.close()

    assert Audit(tmp_path).actions["id"].outcome == "done"


def test_two_processes_never_share_a_log(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    with pytest.raises(AuditError, match=r"another process writes to it\. .* Fix: stop the other one\."):
        Audit(tmp_path)
    audit.close()

"""Whatever happens, in whatever order: one action for one cause, on a sick run, and never after a stop."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.actions.simulated import CHANGES, World

SCHEDULES, EVENTS = 200, 250
_SHARE = 20
"""Schedules of one case."""
_WEIGHTS = {
    "tick": 75,
    "pass_time": 45,
    "sicken": 20,
    "resolve": 4,
    "linger": 3,
    "silence": 2,
    "restart_run": 5,
    "veto": 2,
    "switch": 1,
    "lose": 2,
    "restart": 1,
    "send": 4,
    "forget": 1,
}
_DURING_STEP = {**_WEIGHTS, "restart": 0, "veto": 8, "linger": 8, "resolve": 8, "silence": 8}
_MOST_DURING_STEP = 6


def play(folder: Path, seed: int) -> World:
    chance = random.Random(seed)
    world = World(folder, chance, veto_seconds=chance.choice([0.0, 60.0]))
    world.crash_chance = chance.choice([0.0, 0.0, 0.01, 0.05])

    def happen(weights: dict[str, int], count: int) -> None:
        for name in chance.choices(list(weights), list(weights.values()), k=count):
            getattr(world, name)()

    world.meanwhile = lambda: happen(_DURING_STEP, chance.randrange(_MOST_DURING_STEP))
    happen(_WEIGHTS, EVENTS)
    world.crash_chance = 0.0
    world.restart()
    return world


def incomplete(world: World) -> list[str]:
    """What the audit log lacks."""
    entries = world.audit()
    events = Counter((each["event"], each.get("action"), each.get("step")) for each in entries)
    closed = {each["action"] for each in entries if each["event"] == "closed"}
    opened = {each["action"] for each in entries if each["event"] == "opened"}
    lacking = [f"{action} is not closed" for action in opened - closed]
    lacking += [
        f"{each.action} {each.step} is not there" for each in world.effects if not _told(each, events)
    ]
    lacking += [
        f"{action} was done twice"
        for (event, action, _), count in events.items()
        if event in ("intent", "opened") and count > 1
    ]
    return lacking


def _told(effect: object, events: Counter[tuple[str, str | None, str | None]]) -> bool:
    return events["intent", effect.action, effect.step] == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", range(0, SCHEDULES, _SHARE))
def test_no_schedule_of_alerts_vetoes_restarts_and_kills_breaks_a_promise(tmp_path: Path, first: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(first, first + _SHARE):
        folder = tmp_path / str(seed)
        world = play(folder, seed)

        assert world.broken == [], f"seed {seed}"
        assert incomplete(world) == [], f"seed {seed}"
        done.update(each.step for each in world.effects)
        world.stop()
    assert done.keys() == set(CHANGES)  # a breaker that does nothing keeps all promises but its own

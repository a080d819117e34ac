"""When workers are started, replaced and killed; with workers that do what the test says."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from exporter.gpu.box import Box
from exporter.gpu.contract import FRESH
from exporter.gpu.keeper import Keeper, Limits


class Actor:
    """A worker that says what it is told to."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.signals: list[signal.Signals] = []
        self.exit: int | None = None
        self.holding = False
        self.closed = False

    def say(self, *cards: str, reason: str = "ok", events: tuple[Any, ...] = ()) -> None:
        told = [(number, f"uuid{number}", card) for number, card in enumerate(cards)]
        self.said.append({"nvml": reason, "cards": told, "events": list(events), "text": ""})

    def messages(self) -> list[dict[str, Any]]:
        said, self.said = self.said, []
        return said

    def ended(self) -> bool:
        return self.exit is not None

    def end(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def close(self) -> None:
        self.closed = True

    def held(self) -> bool:
        return self.holding


class Stage:
    """A keeper, its workers in the order in which they were started, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.workers: list[Actor] = []
        self.box = Box(interval=1.0)
        self.keeper = Keeper(self._start, self.box, Limits(retry=2.0, hang=10.0))  # type: ignore[arg-type]
        self.pass_time(0)

    def _start(self) -> Actor:
        self.workers.append(Actor())
        return self.workers[-1]

    def pass_time(self, seconds: float) -> None:
        """In steps of a tenth of a second."""
        for _ in range(round(seconds * 10) + 1):
            self.keeper.tick(self.now, 1e9)
            self.now += 0.1

    def live(self, worker: Actor, seconds: int, *cards: str) -> None:
        """Let time pass while this worker speaks each second."""
        for _ in range(seconds):
            worker.say(*cards)
            self.pass_time(0.9)

    def reason(self) -> str:
        return self.box.reason(self.now)

    def starts(self, seconds: float) -> int:
        """How many workers are started in that time."""
        before = len(self.workers)
        self.pass_time(seconds)
        return len(self.workers) - before


@pytest.fixture(name="stage")
def _stage() -> Stage:
    return Stage()


def test_a_worker_is_started_at_once(stage: Stage) -> None:
    assert len(stage.workers) == 1


def test_one_that_finds_no_driver_is_followed_by_others_ever_less_often(stage: Stage) -> None:
    gaps: list[float] = []
    for _ in range(9):
        stage.workers[-1].say(reason="driver_not_loaded")
        stage.workers[-1].exit = FRESH
        began, count = stage.now, len(stage.workers)
        while len(stage.workers) == count:
            stage.pass_time(0)
        gaps.append(round(stage.now - began))

    assert gaps == [2, 4, 8, 16, 32, 64, 64, 64, 64]
    assert stage.reason() == "driver_not_loaded"
    assert stage.box.reinits == 9


def test_after_good_times_the_first_retry_is_quick_again(stage: Stage) -> None:
    for _ in range(4):
        stage.workers[-1].exit = 1
        stage.pass_time(17)
    stage.live(stage.workers[-1], 3, "ok")
    stage.workers[-1].exit = 1

    assert stage.starts(2.5) == 1


def test_a_silent_worker_is_killed_and_replaced(stage: Stage) -> None:
    (worker,) = stage.workers
    stage.live(worker, 1, "ok")
    stage.pass_time(8.5)
    assert worker.signals == []
    stage.pass_time(1.5)

    assert worker.signals == [signal.SIGKILL]
    assert stage.reason() == "timeout"
    assert stage.box.restarts["hung"] == 1
    worker.exit = -9
    assert stage.starts(3) == 1


def test_a_worker_that_cannot_be_killed_is_not_followed_by_another(stage: Stage) -> None:
    (worker,) = stage.workers
    stage.live(worker, 1, "ok")

    assert stage.starts(300) == 0
    assert stage.reason() == "stuck"
    worker.exit = -9
    assert stage.starts(1) == 1
    stage.live(stage.workers[-1], 1, "ok")
    assert stage.reason() == "ok"


def test_opening_may_take_a_minute(stage: Stage) -> None:
    stage.pass_time(59)
    assert stage.workers[0].signals == []
    stage.pass_time(2)

    assert stage.workers[0].signals == [signal.SIGKILL]
    assert stage.reason() == "timeout"


def test_a_missing_gpu_has_an_heir_look_for_it_who_takes_over_if_it_finds_it(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 3, "ok", "ok")
    stage.live(first, 3, "ok", "lost")
    heir = stage.workers[1]
    heir.say("ok", "ok")
    stage.pass_time(0)

    assert stage.box.well
    assert first.signals == [signal.SIGTERM]
    assert first.closed
    assert stage.box.reinits == 1
    stage.pass_time(1.5)
    assert first.signals == [signal.SIGTERM, signal.SIGKILL]


def test_an_heir_that_finds_no_more_is_sent_away_and_the_next_comes_later(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 3, "ok", "ok")
    for _ in range(60):
        if len(stage.workers) > 1 and stage.workers[-1].exit is None:
            stage.workers[-1].say("ok", "lost")
            stage.workers[-1].exit = 0
        stage.live(first, 1, "ok", "lost")

    assert first.signals == []
    assert 4 <= len(stage.workers) - 1 <= 6
    assert stage.box.working == 1


def test_while_the_driver_holds_the_worker_there_is_no_heir(stage: Stage) -> None:
    first = stage.workers[0]
    first.holding = True
    stage.live(first, 20, "ok", "timeout")
    assert len(stage.workers) == 1
    first.holding = False
    stage.live(first, 2, "ok", "timeout")

    assert len(stage.workers) == 2


def test_an_heir_that_hangs_is_sent_away_without_harm(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 70, "ok", "lost")

    assert stage.workers[1].signals[0] == signal.SIGTERM
    assert first.signals == []
    assert stage.reason() == "ok"


def test_the_last_words_of_a_dying_worker_are_heard(stage: Stage) -> None:
    (worker,) = stage.workers
    stage.live(worker, 1, "ok")
    worker.say("ok", events=(("uuid0", 79, 5.0),))
    worker.exit = -11
    stage.pass_time(0)

    assert b'xid="79"} 1.0' in stage.box.page(stage.now)
    assert stage.box.restarts["died"] == 1


def test_to_stop_ends_worker_and_heir(stage: Stage) -> None:
    stage.live(stage.workers[0], 5, "ok", "lost")
    for worker in stage.workers:
        worker.exit = 0
    stage.keeper.stop()

    assert [worker.signals for worker in stage.workers] == [[signal.SIGTERM], [signal.SIGTERM]]

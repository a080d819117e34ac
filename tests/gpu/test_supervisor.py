"""When workers are started, replaced and killed; with workers that do what the test says."""

from __future__ import annotations

import signal
from unittest.mock import patch

import pytest

from exporter.gpu.__main__ import Pages
from exporter.gpu.backend import FRESH
from exporter.http.message import Request
from tests.gpu.stage import Stage


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
    assert stage.state.reinits == 9


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
    assert stage.state.restarts["hung"] == 1
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

    assert stage.state.well
    assert first.signals == [signal.SIGTERM]
    assert first.closed
    assert stage.state.reinits == 1
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
    assert stage.state.working == 1


def test_while_the_worker_hangs_in_the_driver_no_other_starts(stage: Stage) -> None:
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

    assert b'xid="79"} 1.0' in stage.state.page(stage.now)
    assert stage.state.restarts["died"] == 1


def test_to_stop_ends_worker_and_heir(stage: Stage) -> None:
    stage.live(stage.workers[0], 5, "ok", "lost")
    for worker in stage.workers:
        worker.exit = 0
    stage.supervisor.stop()

    assert [worker.signals for worker in stage.workers] == [[signal.SIGTERM], [signal.SIGTERM]]


def test_while_the_devices_are_released_no_one_is_started_and_then_at_once(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 5, "ok", "lost")
    heir = stage.workers[1]
    stage.supervisor.release(20, stage.now)

    assert (first.signals, heir.signals) == ([signal.SIGTERM], [signal.SIGTERM])
    assert first.closed
    assert not stage.supervisor.free
    assert stage.reason() == "released"
    first.exit = heir.exit = 0
    assert stage.starts(19) == 0
    assert stage.supervisor.free
    assert stage.starts(2) == 1
    assert stage.reason() == "starting"
    assert stage.state.reinits == 1
    assert stage.state.restarts == {"died": 0, "hung": 0}


def test_a_killed_worker_that_does_not_go_is_reported_to_anyone_who_waits_for_the_devices(
    stage: Stage,
) -> None:
    stage.live(stage.workers[0], 1, "ok")
    pages = Pages(stage.state, stage.interval, stage.supervisor)
    request = Request("POST", "/-/release", "seconds=60")
    with patch("exporter.gpu.__main__.time", stage):
        later = pages(request)
        assert callable(later)
        stage.pass_time(2)
        assert later() is None
        stage.pass_time(2)
        answer = later()
        assert answer is not None
        assert answer.status.startswith("503 ")
        assert b"cannot be killed: no GPU is released" in answer.body
        assert stage.reason() == "stuck"
        stage.workers[0].exit = -9
        stage.pass_time(0)
        assert later() == pages._released(60)
        assert stage.reason() == "released"
    assert stage.starts(30) == 0


def test_no_one_looks_so_they_are_read_less_often_and_silence_is_judged_by_that(stage: Stage) -> None:
    stage.interval.patience = 60
    (worker,) = stage.workers
    stage.live(worker, 62, "ok")
    assert worker.orders == [15.0]
    for _ in range(4):
        worker.say("ok")
        stage.pass_time(15)
        assert stage.reason() == "ok"
    assert worker.signals == []
    stage.interval.scraped(stage.now)
    stage.pass_time(0)
    assert worker.orders == [15.0, 1.0]
    assert stage.reason() == "ok"
    stage.pass_time(2.5)
    assert stage.reason() == "ok"
    stage.pass_time(1)
    assert stage.reason() == "timeout"
    stage.pass_time(7)

    assert worker.signals == [signal.SIGKILL]


def test_a_worker_that_is_started_while_no_one_looks_is_reported(stage: Stage) -> None:
    stage.interval.patience = 60
    stage.live(stage.workers[0], 70, "ok")
    stage.workers[0].exit = 1
    stage.pass_time(3)

    assert stage.workers[1].orders == [15.0]


def test_new_settings_come_with_a_new_worker_and_without_a_gap(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 3, "ok", "ok")
    stage.supervisor.renew(stage.start, stage.limits, stage.now)
    stage.live(first, 2, "ok", "ok")
    heir = stage.workers[1]
    assert first.signals == []
    heir.say("ok", "ok")
    stage.pass_time(0)

    assert first.signals == [signal.SIGTERM]
    stage.live(heir, 30, "ok", "ok")
    assert len(stage.workers) == 2
    assert stage.reason() == "ok"


def test_a_worker_that_fails_with_new_settings_is_tried_again_and_the_old_one_goes_on(stage: Stage) -> None:
    first = stage.workers[0]
    stage.live(first, 3, "ok")
    stage.supervisor.renew(stage.start, stage.limits, stage.now)
    for _ in range(20):
        stage.workers[-1].exit = 1 if len(stage.workers) > 1 else None
        stage.live(first, 1, "ok")

    assert first.signals == []
    assert 5 <= len(stage.workers) - 1 <= 11
    assert stage.reason() == "ok"


def test_new_settings_also_reach_who_is_started_after_a_death(stage: Stage) -> None:
    stage.live(stage.workers[0], 3, "ok")
    stage.workers[0].exit = 1
    stage.supervisor.renew(stage.start, stage.limits, stage.now)
    stage.pass_time(3)
    stage.live(stage.workers[1], 10, "ok")

    assert len(stage.workers) == 2

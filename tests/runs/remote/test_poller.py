from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from exporter.runs.remote import polled as module
from exporter.runs.remote.polled import TargetPoller
from exporter.runs.remote.web import PollError
from exporter.runs.signals.record import Event
from tests.real.waiting import eventually


class Scripted:
    """A target of which a test says what each poll does; the last one goes on forever."""

    name = "scripted"
    source = "scripted"
    lacking: tuple[str, ...] = ()

    def __init__(self, *polls: Callable[[], list[Event]]) -> None:
        self.polls = list(polls)
        self.times: list[float] = []

    def poll(self) -> list[Event]:
        self.times.append(time.monotonic())
        return (self.polls.pop(0) if len(self.polls) > 1 else self.polls[0])()

    def gaps(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


def fails() -> list[Event]:
    raise PollError("http://trainer/metrics gives no answer: refused.")


@pytest.mark.slow
def test_a_target_that_fails_is_asked_ever_more_rarely_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.4)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.1)
    target = Scripted(fails, fails, fails, fails, list)
    poller = TargetPoller(target, 0.2, list)

    poller.start()
    eventually(lambda: poller.errors == 4)
    assert poller.problem == "http://trainer/metrics gives no answer: refused."
    assert poller.answered is None
    eventually(lambda: len(target.times) >= 7)
    poller.stop()

    gaps = target.gaps()
    for gap, pause in zip(gaps, (0.1, 0.2, 0.4, 0.4), strict=False):
        assert gap >= pause
    assert (poller.problem, poller.errors) == (None, 4)


def test_the_first_failure_is_tried_again_within_a_second_however_long_the_interval() -> None:
    answers: list[list[Event]] = []
    target = Scripted(fails, list)
    poller = TargetPoller(target, 3600, answers.append)

    poller.start()
    eventually(lambda: bool(answers))
    poller.stop()

    assert (poller.problem, poller.errors) == (None, 1)


def test_what_a_target_lacks_is_logged_once_while_the_rest_of_it_is_taken(logged: list[str]) -> None:
    taken: list[list[Event]] = []
    target = Scripted(list)
    target.lacking = ("no experiment 'a'.", "no experiment 'b'.")
    poller = TargetPoller(target, 0.01, taken.append)
    poller.start()
    eventually(lambda: len(taken) > 2)
    target.lacking = ("no experiment 'b'.",)
    before = len(taken)
    eventually(lambda: len(taken) > before + 2)
    poller.stop()

    assert logged == ["no experiment 'a'.", "no experiment 'b'."]
    assert poller.polled().up


def test_what_cannot_be_taken_is_a_problem_and_no_end_of_the_polls() -> None:
    faults: list[Exception] = [OverflowError()]

    def take(_: list[Event]) -> None:
        if faults:
            raise faults[0]

    poller = TargetPoller(Scripted(list), 0.01, take)

    poller.start()
    eventually(lambda: poller.errors > 1)
    assert poller.problem == "scripted: OverflowError, an internal error of Stepwatch"
    assert not poller.polled().up
    faults.clear()
    eventually(lambda: poller.problem is None)
    poller.stop()

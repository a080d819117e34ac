"""The helpers themselves: the programs talk to each other as the end-to-end tests need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real import waiting
from tests.real.waiting import Work, eventually

pytestmark = pytest.mark.e2e


def test_a_wait_ends_when_the_work_is_done_and_says_what_was_seen_last() -> None:
    done = iter(range(100))
    with pytest.raises(AssertionError, match="not within 3 looks: state starting"):
        eventually(
            lambda: False, Work("looks", lambda: next(done)), 3, pause=0, seen=lambda: "state starting"
        )
    assert next(done) == 5, "asked no more often than it takes"


def test_a_wait_outlasts_a_program_that_is_slow_gone_or_starts_again() -> None:
    counts: Iterator[float | None] = iter([50, 51, None, None, 0, 1, 2, 2, 2, 3])
    looks: list[None] = []

    def count() -> float:
        if (found := next(counts)) is None:
            raise ConnectionRefusedError
        return found

    eventually(lambda: looks.append(None) or len(looks) == 9, Work("scrapes", count), 4, pause=0)
    assert len(looks) == 9


def test_a_hang_ends_a_wait_whatever_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HANG_SECONDS", 0.05)
    with pytest.raises(AssertionError, match=r"not within 0 s \(0 scrapes\): nothing more is known"):
        eventually(lambda: False, Work("scrapes", lambda: 7))
    with pytest.raises(AssertionError, match="no work counted"):
        eventually(lambda: False)

"""Records at which a rule holds become alerts, some of which others hold back."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stepwatch.alerts.incidents import PAIRS
from stepwatch.backtest.judge import APART, Episode, Rule, episodes, inhibited
from stepwatch.rules.routing import inhibitions

WARNING, CRITICAL, OTHER_TOPIC = (
    Rule("KLHigh", "warning", "kl", ""),
    Rule("KLExplosion", "critical", "kl", ""),
    Rule("RewardCollapse", "critical", "reward", ""),
)


@given(st.sets(st.integers(1, 200)))
def test_times_less_than_ten_records_apart_are_one_episode(records: set[int]) -> None:
    found = list(episodes(WARNING, records))
    inside = {record for each in found for record in range(each.first, each.last + 1)}
    assert records <= inside
    assert all(each.first in records and each.last in records for each in found)
    assert all(after.first - before.last >= APART for before, after in pairwise(found))
    gaps = (b - a for each in found for a, b in _pairs(records, each))
    assert all(gap < APART for gap in gaps)


def _pairs(records: set[int], episode: Episode) -> list[tuple[int, int]]:
    inside = sorted(record for record in records if episode.first <= record <= episode.last)
    return list(pairwise(inside))


def test_incidents_decide_what_is_held_back() -> None:
    rules = inhibitions(PAIRS)
    early, late = Episode(WARNING, 5, 30), Episode(WARNING, 12, 30)
    page, elsewhere = Episode(CRITICAL, 10, 20), Episode(OTHER_TOPIC, 1, 40)

    assert not inhibited(early, [early, page, elsewhere], rules)  # it was sent before
    assert inhibited(late, [late, page, elsewhere], rules)
    assert not inhibited(late, [late, elsewhere], rules)
    assert not inhibited(page, [late, page], rules)
    assert inhibited(Episode(WARNING, 20 + APART - 1, 60), [page], rules)  # still held by keep_firing_for
    assert not inhibited(Episode(WARNING, 20 + APART, 60), [page], rules)

"""What moved first: the definition, how soon and how surely it is found, and what undoes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Record
from exporter.runs.stats.departure import departure

values_ = st.lists(st.integers(-20, 20).map(float) | st.floats(-1e6, 1e6), max_size=80)


@given(values_, st.integers(0, 90), st.sampled_from(["up", "down", "both"]))
def test_it_is_what_its_definition_says(values: list[float], onset: int, worse: str) -> None:
    found = departure(list(enumerate(values)), onset, worse)

    ways = {"up": [1], "down": [-1], "both": [1, -1]}[worse]
    expected = next((each for sign in ways if (each := _plain(values, onset, sign))), None)
    assert (found is None) == (expected is None)
    if found and expected:
        assert found.step == expected[0]
        assert found.deviations == pytest.approx(expected[1])


def _plain(values: Sequence[float], onset: int, sign: int) -> tuple[int, float] | None:
    """The definition in the module's docstring, word by word."""
    smoothed: list[float] = []
    for place in range(1, len(values) - 1):
        middle = sign * median(values[place - 1 : place + 2])
        smoothed.append(middle if not smoothed else smoothed[-1] + 0.3 * (middle - smoothed[-1]))
    known = max(0, min(onset - 1, len(smoothed)))
    counting = []
    for split in range(1, len(smoothed)):
        wanted = max(20, known - split)
        stretch = smoothed[max(0, split - wanted) : split]
        if len(stretch) >= 10 and 2 * len(stretch) >= wanted:
            band = max(max(stretch) - min(stretch), 0.01 * max(map(abs, smoothed)))
            if band and (distance := (smoothed[-1] - max(stretch)) / band) > 4:
                counting.append((distance, max(stretch) + max(band / 4, 0.02 * distance * band)))
    if not counting:
        return None
    farthest = max(distance for distance, _ in counting)
    distance, edge = [each for each in counting if each[0] >= 0.8 * farthest][-1]
    inside = [place for place, value in enumerate(smoothed) if value <= edge]
    return inside[-1] + 2, sign * 4 * (distance + 0.5)


def _noisy(level: Callable[[int], float], count: int, noise: float, seed: int) -> list[tuple[int, float]]:
    dice = Random(seed)
    return [(step, level(step) + dice.gauss(0, noise)) for step in range(count)]


@pytest.mark.parametrize("before", [60, 300, 3000])
@pytest.mark.parametrize(("lasts", "usually"), [(1, 2), (50, 8), (200, 25)])
def test_a_fall_is_found_where_it_began_however_slow_it_is_and_whatever_was_before(
    before: int, lasts: int, usually: int
) -> None:
    """From 0.6 to 0.1 with a noise of 0.02, when the fall is over and long after that."""
    begin = max(before, lasts)

    def level(step: int) -> float:
        return 0.6 - 0.5 * min(1.0, max(0.0, (step - begin) / lasts))

    onset = begin + lasts // 2 + 3
    late = []
    for seed in range(20):
        for now in (begin + lasts + 20, begin + lasts + 200):
            found = departure(_noisy(level, now, 0.02, seed), onset, "down")
            assert found
            assert found.deviations < -18
            late.append(found.step - begin)
    assert min(late) >= -5
    assert max(late) <= 2 + 0.6 * lasts
    assert sum(each <= usually for each in late) >= 0.9 * len(late)


@pytest.mark.parametrize(
    "level",
    [
        lambda _: 0.5,
        lambda step: step / 400,
        lambda step: 1 - 0.9 ** (step / 10),
        lambda step: 0.4 * math.exp(-step / 150),
        lambda step: 0.3 * math.sqrt(step / 400),
        lambda step: 0.5 + 0.03 * math.sin(step / 20),
    ],
    ids=["stands", "drifts", "saturates", "decays", "grows ever more slowly", "wavers"],
)
def test_a_signal_that_goes_on_as_it_went_is_not_named(level: Callable[[int], float]) -> None:
    named = [
        bool(departure(_noisy(level, onset + 10, 0.02, seed), onset, "both"))
        for seed in range(40)
        for onset in (60, 150, 390)
    ]
    assert sum(named) <= len(named) / 40


def test_one_that_moved_the_other_way_or_came_back_is_not_named() -> None:
    rose = _noisy(lambda step: 0.5 + (step >= 100), 120, 0.02, 1)
    spiked = _noisy(lambda step: 0.5 + (100 <= step < 110), 140, 0.02, 1)

    assert departure(rose, 105, "up")
    assert not departure(rose, 105, "down")
    assert not departure(spiked, 105, "up")


def test_an_old_change_of_level_is_not_taken_for_the_one_that_went_with_the_onset() -> None:
    found = departure(_noisy(lambda step: 0.2 * (step >= 100) + (step >= 400), 420, 0.02, 1), 405, "up")
    assert found
    assert 398 <= found.step <= 402


def _run(records: Sequence[dict[str, float]], first: int = 0, into: Run | None = None) -> Run:
    run = into or Run("flat_jsonl", "", Options())
    for step, values in enumerate(records, first):
        run.take(Record(step, values), Clock(1e9 + step, float(step), live=True))
    return run


def _steps(count: int, reward: float, kl: float, seed: int = 1) -> list[dict[str, float]]:
    dice = Random(seed)
    return [
        {"reward": reward + dice.gauss(0, 0.02), "kl": kl + dice.gauss(0, 0.001), "lr": 1e-6}
        for _ in range(count)
    ]


def test_signals_of_a_run_stand_in_the_order_in_which_they_left() -> None:
    run = _run([*_steps(137, 0.6, 0.01), *_steps(36, 0.3, 0.01), *_steps(60, 0.3, 2.0)])

    (first, reward), (then, kl) = run.history.departures(150)
    assert (first, then) == ("reward", "kl")
    assert 136 <= reward.step <= 140
    assert 172 <= kl.step <= 175
    assert reward.deviations < 0 < kl.deviations


def test_a_run_of_many_steps_is_right_to_the_width_of_a_stretch_of_its_curve() -> None:
    run = _run([*_steps(5000, 0.6, 0.01), *_steps(100, 0.6, 2.0)])

    ((signal, kl),) = run.history.departures(5010)
    assert signal == "kl"
    assert abs(kl.step - 5000) <= 5100 / 256


@pytest.mark.parametrize("undone", ["mark", "resume", "from scratch"])
def test_a_mark_or_another_attempt_undoes_it(undone: str) -> None:
    run = _run([*_steps(100, 0.6, 0.01), *_steps(30, 0.6, 2.0)])
    assert [signal for signal, _ in run.history.departures(105)] == ["kl"]

    if undone == "mark":
        run.mark(1e9, "new data")
    first = {"mark": 130, "resume": 80, "from scratch": 0}[undone]
    _run(_steps(90, 0.6, 2.0, seed=2), first, run)
    assert run.history.departures(first + 60) == ()


def test_constant_values_and_nan_do_not_disturb_it() -> None:
    odd = [{"truncated_ratio": 0.0, "grad_norm": math.nan if step % 9 else 0.5} for step in range(60)]
    run = _run([*odd, *({"truncated_ratio": 0.4, "grad_norm": math.nan} for _ in range(10))])

    ((signal, moved),) = run.history.departures(65)
    assert (signal, moved.step) == ("truncated_ratio", 60)
    assert moved.deviations == pytest.approx(400, rel=0.05)

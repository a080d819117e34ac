"""Every exported statistic equals its definition, whatever the trainer logs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.serve.metrics import RunText
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Record
from exporter.runs.stats.catalogue import (
    STATISTICS,
    ZERO_MEANS_NOT_MEASURED,
    Hold,
    Statistic,
)
from exporter.runs.stats.statistics import SignalStatistics, by_signal
from tests.runs import naive
from tests.runs.lines import KEYS

SIGNALS = sorted({statistic.signal for statistic in STATISTICS})
GAP = None
RESUME = "resume"

Events = list[float | str | None]


@st.composite
def histories(draw: st.DrawFn) -> Events:
    """What one signal may go through: stretches of values, gaps, NaN and resumes."""
    numbers = st.one_of(
        st.floats(-1e6, 1e6, allow_nan=False, width=32),
        st.sampled_from([0.0, -0.0, 1.0, 1e-9, -1e-300, 1e290]),
    )
    events: Events = []
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 30))
        match draw(st.sampled_from(["noisy", "noisy", "constant", "ramp", "holes", "bad", "resume"])):
            case "noisy":
                random, scale = Random(draw(st.integers(0, 10**6))), draw(st.sampled_from([1e-6, 1.0, 1e6]))
                events += [random.gauss(0.5, 1) * scale for _ in range(2 * length)]
            case "constant":
                events += [draw(numbers)] * length
            case "ramp":
                start, slope = draw(numbers), draw(st.floats(-1, 1))
                events += [start + slope * step for step in range(length)]
            case "holes":
                events += draw(st.lists(st.one_of(st.just(GAP), numbers), min_size=length, max_size=length))
            case "bad":
                events += [draw(st.sampled_from([math.nan, math.inf, -math.inf, 1e305]))] * (length % 5 + 1)
            case "resume":
                events.append(RESUME)
    return events


@dataclass
class Both:
    """One signal, once as the exporter computes it and once by its definition."""

    statistics: SignalStatistics
    history: naive.History

    def feed(self, events: Events, step: int = 0) -> None:
        for event in events:
            step += 3
            if event == RESUME:
                self.statistics.resume()
                self.history.attempt += 1
            elif isinstance(event, float):
                self.statistics.add(event, step)
                known = event if abs(event) < 1e300 else math.nan
                self.history.values.append((self.history.attempt, step, known))

    def compare(self) -> None:
        for statistic, read in self.statistics.readers:
            expected = naive.value(statistic, self.history)
            assert same(read(), expected, self.scale()), (statistic, read(), expected)

    def scale(self) -> float:
        return max((abs(value) for value in self.history.finite()), default=0.0)


def same(found: float | None, expected: float | None, scale: float) -> bool:
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9 * scale + 1e-300)


def fresh(signal: str) -> Both:
    return Both(by_signal()[signal], naive.History())


@pytest.mark.parametrize("signal", SIGNALS)
@given(events=histories())
def test_every_statistic_equals_its_definition(signal: str, events: Events) -> None:
    both = (
        fresh(signal) if signal != "reward_max" else Both(SignalStatistics(_listed(signal)), naive.History())
    )
    half = len(events) // 2

    both.feed(events[:half])
    both.compare()
    both.feed(events[half:], step=3 * half)
    both.compare()


@given(highs=st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(-5, 5)), min_size=1, max_size=80))
def test_range_of_reward_max_goes_down_to_the_smallest_reward_min(
    highs: list[tuple[bool, bool, float]],
) -> None:
    made = by_signal()
    high, low = Both(made["reward_max"], naive.History()), Both(made["reward_min"], naive.History())
    for step, (has_high, has_low, value) in enumerate(highs):
        high.feed([value if has_high else GAP], step)
        low.feed([value - 1 if has_low else GAP], step)

    for statistic, read in made["reward_max"].readers:
        assert same(read(), naive.value(statistic, high.history, low.history), 6.0), statistic


@pytest.mark.parametrize(
    ("signal", "name", "values", "expected"),
    [
        ("reward", "ewma", [1.0, 0.0], 0.5),
        ("reward", "best", [3.0, 0.0, 0.0], 1.0),
        ("reward", "best", [3.0, 0.0], None),
        ("reward", "noise", [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], math.sqrt(math.pi) / 2),
        ("reward", "noise", [0.0, 1.0, 0.0, 1.0, 0.0, 1.0], None),
        ("kl", "noise", [0.0, 1.0] * 10 + [1e6] + [0.0, 1.0] * 10, 38 / 32 * math.sqrt(math.pi) / 2),
        ("reward", "noise", [0.0] * 31 + [1.0] + [0.0] * 31, 2 / 62 * math.sqrt(math.pi) / 2),
        ("kl", "start", [9.0, 1.0, 2.0, 3.0, 0.0, 50.0], 2.0),
        ("kl", "start", [1.0] * 4, None),
        ("entropy", "peak", [1.0, 3.0, 2.0, -50.0], 2.0),
        ("validation_score", "confirmed_best", [0.1, 0.9, 0.3, 0.4, 0.2], 0.3),
        ("validation_score", "confirmed_best", [0.9], None),
        ("validation_score", "noise", [0.5] * 6, None),
        ("true_reward", "gain", [1.0, 3.0, 1.0, 1.0, 4.0, 8.0], 2.0),
        ("true_reward", "gain", [1.0] * 4, None),
        ("reward", "steps_since_best", [1.0] * 10, 5.0),
        ("reward", "steps_since_best", [1.0] * 4, None),
    ],
)
def test_definitions_by_hand(signal: str, name: str, values: list[float], expected: float | None) -> None:
    both = Both(by_signal()[signal], naive.History())
    for step, value in enumerate(values):
        both.statistics.add(value, step)

    read = next(read for statistic, read in both.statistics.readers if statistic.name == name)

    assert read() == (expected if expected is None else pytest.approx(expected))


@given(
    outliers=st.sets(st.integers(31, 150), max_size=2),
    size=st.sampled_from([10.0, 2e3, 1e9]),
    seed=st.integers(0, 99),
)
def test_outliers_do_not_hide_a_rise_nor_does_the_rise_itself(
    outliers: set[int], size: float, seed: int
) -> None:
    random, kl = Random(seed), by_signal()["kl"]
    read = {each.name: value for each, value in kl.readers if each.steps in (None, 3)}
    for step in range(1, 161):
        level = 2.0 if step >= 30 else 0.001
        kl.add(size if step in {31} | outliers else level * (1 + 0.1 * random.uniform(-1, 1)), step)
        if step >= 32:  # what KLExplosion asks
            assert (read["min_over_steps"]() or 0) - (read["start"]() or 0) > max(
                1, 6 * (read["noise"]() or math.inf)
            ), step


@given(events=histories())
def test_nan_and_inf_move_nothing_but_the_streak(events: Events) -> None:
    with_bad, without = fresh("reward"), fresh("reward")
    with_bad.feed(events)
    without.feed([event for event in events if not isinstance(event, float) or abs(event) < 1e300])

    readers = zip(with_bad.statistics.readers, without.statistics.readers, strict=True)
    for (statistic, read), (_, other) in readers:
        if statistic.name not in ("nonfinite_streak_steps", "steps_since_best"):
            assert read() == other(), statistic


def test_values_too_large_to_sum_count_as_not_finite() -> None:
    both = fresh("reward")
    both.feed([1e308, -1e308] * 40)

    both.compare()
    assert both.statistics.nonfinite == 80


@given(first=histories(), second=histories(), signal=st.sampled_from(SIGNALS))
def test_what_is_kept_and_taken_goes_on_like_a_resume(first: Events, second: Events, signal: str) -> None:
    gone_on, restarted = fresh(signal), fresh(signal)
    gone_on.feed([*first, RESUME])
    restarted.statistics.restore(orjson.loads(orjson.dumps(gone_on.statistics.snapshot())))
    gone_on.feed(second, step=1000)
    restarted.feed(second, step=1000)

    readers = zip(gone_on.statistics.readers, restarted.statistics.readers, strict=True)
    for (statistic, read), (_, other) in readers:
        assert read() == other(), statistic
    assert gone_on.statistics.snapshot() == restarted.statistics.snapshot()


def test_a_resume_clears_windows_and_keeps_start_bests_peak_gain_and_noise() -> None:
    signals = [fresh(name) for name in ("reward", "entropy", "validation_score")]
    for both in signals:
        both.feed([index % 7 / 10 for index in range(70)])
    before = {s: read() for both in signals for s, read in both.statistics.readers}
    for both in signals:
        both.statistics.resume()
    after = {s: read() for both in signals for s, read in both.statistics.readers}

    for statistic, value in after.items():
        if statistic.name.endswith("_over_steps"):
            assert value is None, statistic
        elif statistic.name != "nonfinite_streak_steps":
            assert value == before[statistic], statistic


# what the list holds


def test_what_serves_as_a_denominator_is_not_held() -> None:
    unheld = {"noise", "start", "best", "confirmed_best", "peak", "ewma"}

    assert all(s.hold is Hold.NONE for s in STATISTICS if s.name in unheld)


@pytest.mark.parametrize("signal", sorted(ZERO_MEANS_NOT_MEASURED))
def test_constant_zero_is_not_measured_and_not_exported_until_it_is_not_zero(signal: str) -> None:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    view = View("r", run, "running", None)
    for step in range(70):
        run.take(Record(step, {KEYS[signal]: 0.0}), Clock(1e9, 100.0 + step, live=True))
    unmeasured = "".join(RunText().chunks(view, 170.0).values())
    run.take(Record(70, {KEYS[signal]: 0.25}), Clock(1e9, 170.0, live=True))
    measured = "".join(RunText().chunks(view, 170.0).values())

    assert f"rl_{signal}" not in unmeasured
    assert f'signal="{signal}"' not in unmeasured
    assert f'rl_{signal}{{run="r"}} 0.25' in measured
    assert f'signal="{signal}"' in measured


@pytest.mark.parametrize("signal", sorted(ZERO_MEANS_NOT_MEASURED))
def test_nan_from_the_first_step_on_is_not_a_constant_zero(signal: str) -> None:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    for step in range(3):
        run.take(Record(step, {KEYS[signal]: math.nan}), Clock(1e9, 100.0, live=True))

    shown = RunText().chunks(View("r", run, "running", None), 100.0)

    assert f'rl_nonfinite_streak_steps{{run="r",signal="{signal}"}} 3.0' in shown["rl_nonfinite_streak_steps"]


def test_constant_zero_of_other_signals_is_a_measurement() -> None:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    for step in range(5):
        values = {"critic/score/mean": 0.0, "actor/grad_norm": 0.0, "timing_s/step": 30.0 + step}
        run.take(Record(step, values), Clock(1e9, 100.0, live=True))

    shown = RunText().chunks(View("r", run, "running", None), 100.0)

    assert shown["rl_reward"] == 'rl_reward{run="r"} 0.0\n'
    assert 'signal="grad_norm",steps="5"} 0.0' in shown["rl_median_over_steps"]


def _listed(signal: str) -> list[Statistic]:
    return [statistic for statistic in STATISTICS if statistic.signal == signal]


# families of curves: what GradNormHigh and EntropyCollapse ask of them


def _gradients(kind: str, rate: float, spread: float, random: Random) -> list[float]:
    """Norms that are usual for 60 steps, then climb, jump, burst in spikes or go on; noise is lognormal."""
    levels = [0.3] * 60
    match kind:
        case "climb":
            levels += [0.3 * rate**step for step in range(1, 48)]
        case "jump":
            levels += [0.3 * rate] * 47
        case "burst":
            levels += [0.3 * 10 ** (5 * (step % 3 != 0)) for step in range(20)] + [0.3] * 27
        case _:
            levels += [0.3 * rate ** (step / 47) for step in range(47)]
    return [each * math.exp(random.gauss(0, spread)) for each in levels]


@pytest.mark.parametrize(
    ("kind", "rate", "fires"),
    [
        *[("climb", rate, True) for rate in (1.087, 1.15, 1.5)],  # 0.3 to 15 over 47 steps, and faster
        *[("jump", rate, True) for rate in (15, 50)],
        *[("drift", rate, False) for rate in (0.2, 1, 2)],
        ("burst", 1, False),
    ],
)
@given(spread=st.sampled_from([0.0, 0.1, 0.3]), seed=st.integers(0, 999))
def test_a_gradient_norm_that_climbs_leaves_its_lowest_level(
    kind: str, rate: float, fires: bool, spread: float, seed: int
) -> None:
    norm = by_signal()["grad_norm"]
    read = {(each.name, each.steps): value for each, value in norm.readers}
    fired = False
    for step, value in enumerate(_gradients(kind, rate, spread, Random(seed))):
        norm.add(value, step)
        lowest, usual = read["min_over_steps", 10](), read["lowest_level", None]()
        fired |= lowest is not None and usual is not None and lowest > 8 * usual

    assert fired is fires


@pytest.mark.parametrize("steps", [100, 1000, 5000])
@pytest.mark.parametrize("batch", [8, 512])
@pytest.mark.parametrize(("gain", "fires"), [(0.4, False), (0.0, True)])
def test_little_entropy_is_a_collapse_only_without_a_gain_of_the_reward(
    steps: int, batch: int, gain: float, fires: bool
) -> None:
    made, random = by_signal(), Random(steps)
    entropy, reward = made["entropy"], made["reward"]
    low = {each.name: value for each, value in entropy.readers}
    of_reward = {each.name: value for each, value in reward.readers}
    found = []
    for step in range(steps):
        done = min(1.0, 3 * step / steps)  # the last two thirds: saturated
        entropy.add(math.exp(-4 * done) * (1 + 0.1 * random.gauss(0, 1)), step)
        mean = 0.3 + gain * done
        reward.add(mean + random.gauss(0, math.sqrt(mean * (1 - mean) / batch)), step)
        smooth, peak, noise = low["ewma_max_over_steps"](), low["peak"](), of_reward["noise"]()
        if smooth is not None and peak is not None and noise is not None:
            rose = of_reward["gain"]() or 0.0
            found.append(smooth < min(0.05 * peak, 0.1) and rose < 3 * noise)

    if batch == 512 or fires:  # a batch of 8 has so much noise that a gain of 0.4 is 2 to 3 of it
        assert any(found) is fires

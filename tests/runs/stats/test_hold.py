"""No step falls between two scrapes: extremes are held until the next scrapes have seen them."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.serve.metrics import Chunks, RunText
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Record
from exporter.runs.stats.catalogue import Hold, Statistic
from tests.runs.lines import KEYS


@dataclass
class Live:
    """A run that is fed live records, and all that its statistics ever were."""

    run: Run
    seconds: float
    past: list[tuple[float, dict[Statistic, float]]]

    def feed(self, now: float, values: dict[str, float], step: int) -> None:
        record = Record(step, {KEYS[signal]: value for signal, value in values.items()})
        self.run.take(record, Clock(1e9 + now, now, live=True))
        self.past.append((now, self.present()))

    def present(self) -> dict[Statistic, float]:
        readers = [reader for signal in self.run.statistics.values() for reader in signal.readers]
        return {statistic: value for statistic, read in readers if (value := read()) is not None}

    def expected(self, now: float) -> dict[Statistic, float]:
        """The extreme over the records of the last seconds, plus the present."""
        found = {}
        for statistic, value in self.present().items():
            recent = [
                then[statistic] for at, then in self.past if at + self.seconds >= now and statistic in then
            ]
            extreme = {Hold.HIGH: max, Hold.LOW: min, Hold.NONE: lambda values: values[-1]}[statistic.hold]
            found[statistic] = extreme([*recent, value])
        return found


records = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.5, 3.0, 9.0, 20.0]),
        st.lists(st.one_of(st.floats(-2, 2), st.sampled_from([0.0, math.nan])), min_size=3, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.slow
@given(arrivals=records, hold=st.sampled_from([1.0, 5.0, 15.0]))
def test_held_extremes_are_those_of_the_records_of_the_last_seconds_and_the_present(
    arrivals: list[tuple[float, list[float], bool]], hold: float
) -> None:
    live = Live(Run("verl_jsonl", "verl", Options(hold=hold)), hold, [])
    text, now = RunText(), 0.0
    for step, (wait, (a, b, c), scraped) in enumerate(arrivals):
        now += wait
        spread = abs(b) if math.isfinite(b) else 0.0
        live.feed(now, {"reward": a, "reward_max": c + spread, "reward_min": c, "kl": b}, step)
        if scraped:
            shown = text.chunks(View("r", live.run, "running", None), now)
            for statistic, value in live.expected(now).items():
                if statistic.signal != "kl" or live.run.statistics["kl"].measured:
                    assert _shown(statistic, shown) == value, statistic


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_steps() -> None:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))

    def feed(first: int, last: int) -> None:
        for step in range(first, last):
            values = {key: 1e6 - step + index for index, key in enumerate(KEYS.values())}
            run.take(Record(step, values), Clock(1e9 + step, float(step), live=True))

    feed(0, 200)
    tracemalloc.start()
    try:
        # The history keeps at most 512 stretches, and as many at 10,400 steps as at 1,300.
        feed(200, 1_300)
        before = tracemalloc.get_traced_memory()[0]
        feed(1_300, 10_400)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert grown < 20_000


def _shown(statistic: Statistic, chunks: Chunks) -> float | None:
    labels = "".join(f',{name}="{label}"' for name, label in statistic.labels.items())
    start = f'{statistic.metric}{{run="r"{labels}}} '
    lines = chunks.get(statistic.metric, "").splitlines()
    return next((float(line.removeprefix(start)) for line in lines if line.startswith(start)), None)

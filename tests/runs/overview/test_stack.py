"""A sick run on the whole stack: its story has the alerts, their words, and the steps at which they fired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from exporter.runs.collector import Collector, Settings
from exporter.runs.overview.models import RunDetails, RunId
from exporter.runs.overview.overview import Overview
from exporter.runs.overview.panels import NAME, PanelFile
from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.e2e.test_delivery import PAGES
from tests.e2e.writer import writing
from tests.own_logs import SICK

pytestmark = pytest.mark.e2e


@contextmanager
def telling(stack: Stack) -> Iterator[Overview]:
    """An exporter that begins now, beside the one that Prometheus asks."""
    watch, stop = Collector(Settings(paths=(str(stack.runs),))), Event()
    story = Overview(
        watch.views,
        PanelFile(stack.state.rendered / "exporter/generated" / NAME),
        f"http://{stack.config.address('prometheus')}",
    )

    def look() -> None:
        while not stop.wait(0.2):
            watch.look()

    thread = Thread(target=look)
    thread.start()
    story.start()
    try:
        yield story
    finally:
        stop.set()
        story.stop()
        thread.join()


def reported(stack: Stack, story: Overview, names: set[str]) -> RunDetails:
    """The story of the sick run, once it has episodes of these alerts."""

    def has_them() -> bool:
        found = story.run(RunId("ppo/sick"))
        if found is None:
            return False
        # one that is only known to fire is taken to begin at the last step
        begun = {each.name for each in found.episodes if each.first_step < (found.summary.step or 0)}
        return names <= begun

    stack.wait_until(has_them)
    found = story.run(RunId("ppo/sick"))
    assert found is not None
    return found


@pytest.mark.parametrize("versions", MAINLY_NEWEST)
def test_alerts_and_their_steps_are_reported_also_by_an_exporter_that_was_not_there(
    tmp_path: Path, versions: tuple[str, str]
):
    with (
        Stack(tmp_path, versions) as stack,
        writing(SICK, stack.runs / "ppo/sick.log", "--rate", "1.5", "--stay"),
    ):
        with telling(stack) as story:
            stack.wait_sent("ppo/sick", PAGES)
            stack.wait_until(lambda: {(page, "ppo/sick") for page in PAGES} <= stack.firing())
            first = reported(stack, story, PAGES)
            assert story.prometheus == ""
        with telling(stack) as story:
            again = reported(stack, story, PAGES)

    for found in (first, again):
        by_name = {each.name: each for each in found.episodes}
        kl = by_name["KLExplosion"]
        assert kl.firing
        assert kl.summary
        assert 36 <= kl.first_step < kl.last_step == found.summary.step
        health = next(each for each in found.summary.healths if each.signal == "kl")
        assert health.state == "critical"
        assert health.diagnosis.startswith("KLExplosion: ")
        assert "limit" in health.diagnosis
        assert found.summary.firing[0].severity == "critical"
        drawn = {chart.title: chart for chart in found.charts}
        assert {band.alert for band in drawn["KL"].bands} >= {"KLExplosion"}
        assert "KLExplosion" not in {band.alert for band in drawn["Reward"].bands}
        now = {each.name for each in found.episodes if each.firing}
        firing = [chart.title for chart in found.charts if any(band.alert in now for band in chart.bands)]
        assert list(drawn)[: len(firing)] == firing, "charts with an alert that fires come first"
    steps = [
        [each.first_step for each in found.episodes if each.name == "KLExplosion"] for found in (first, again)
    ]
    # asked again later, over a longer time and so at other moments: a look of some 6 s apart
    assert abs(steps[0][0] - steps[1][0]) <= 20

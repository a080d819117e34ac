"""`make up` waits for parts that get on, and gives up on those that do not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from stepwatch.services import lifecycle
from stepwatch.services.lifecycle import Look
from tests.real import PrometheusServer


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_a_real_prometheus_reports_the_segment_that_it_replays(version: str, tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text("")
    with PrometheusServer(version, tmp_path) as prometheus:
        prometheus.kill()
        prometheus.start()
        lines = prometheus.log.read_text().splitlines()

    seen = [lifecycle.replay_progress(lines[:count]) for count in range(len(lines) + 1)]
    assert "replays its write-ahead log" in seen
    assert "replays its write-ahead log, segment 1 of 1" in seen
    assert seen[-1] == ""


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only sleeping moves."""
    now = [0.0]
    monkeypatch.setattr(lifecycle.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(lifecycle.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def waited(
    story: dict[str, list[Look]], *, ended: dict[str, int] | None = None
) -> tuple[dict[str, str], str]:
    """What is given up, and what is said, when each part shows these looks, a second apart, and stays so."""
    said: list[str] = []
    turns = {name: iter(looks) for name, looks in story.items()}
    last: dict[str, Look] = {}

    def looks(names: Iterable[str]) -> dict[str, Look]:
        for name in names:
            last[name] = next(turns[name], None) or last[name]
        return {name: last[name] for name in names}

    failed = lifecycle.wait_for_parts(story, looks, said.append, ended or {}, pause=1)
    return failed, "\n".join(said)


STARTING, READY = Look(ready=False), Look(ready=True)


@pytest.mark.usefixtures("clock")
def test_a_part_that_never_answers_is_given_up_after_the_patience() -> None:
    failed, said = waited({"well": [STARTING, READY], "sick": [STARTING]})

    assert failed == {"sick": "did not answer within 121 s"}
    assert "well is ready (1.0 s)" in said
    assert "still starting after 110 s: sick" in said


@pytest.mark.usefixtures("clock")
def test_a_part_that_dies_again_and_again_is_given_up_long_before() -> None:
    failed, said = waited(
        {"sick": [Look(ready=False, ends=5 + second // 2) for second in range(20)]}, ended={"sick": 5}
    )

    assert failed == {"sick": "ended 3 times while it started"}
    assert "still starting" not in said


@pytest.mark.usefixtures("clock")
def test_a_prometheus_that_replays_its_log_is_waited_for_as_long_as_it_gets_on() -> None:
    replaying = [Look(ready=False, busy=f"segment {second // 300}") for second in range(3000)]
    failed, said = waited({"prometheus": [*replaying, READY]})

    assert failed == {}
    assert "still starting after 2990 s: prometheus (segment 9)" in said


@pytest.mark.usefixtures("clock")
def test_a_prometheus_that_no_longer_gets_on_is_given_up() -> None:
    failed, _ = waited({"prometheus": [Look(ready=False, busy="segment 3")]})

    assert failed == {"prometheus": "did not answer within 601 s"}


@pytest.mark.usefixtures("clock")
def test_parts_that_were_taken_down_meanwhile_are_not_waited_for() -> None:
    failed, said = waited({"one": [STARTING, Look(ready=False, gone=True)]})

    assert failed.keys() == {"one"}
    assert "still starting" not in said

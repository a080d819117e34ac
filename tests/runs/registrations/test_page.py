"""The page that rl-insight's client serves, read as its gauges are set one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from exporter.runs.remote import page as polled_page
from exporter.runs.remote.page import MonitorPage
from exporter.runs.signals.record import Event, Record

LABELS = ("experiment_name", "project")


class Hub:
    """A page as rl-insight's hub serves it, at the same address after each start."""

    def __init__(self) -> None:
        self.port = 0
        self._stop: Callable[[], None] | None = None
        self.begins()
        self.address = f"127.0.0.1:{self.port}"

    def begins(self) -> None:
        """Another job's hub takes the place of this one."""
        self.ends()
        self._registry, self._gauges = CollectorRegistry(), dict[str, Gauge]()
        server, thread = start_http_server(self.port, "127.0.0.1", self._registry)
        self.port = server.server_address[1]

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop

    def ends(self) -> None:
        if self._stop:
            self._stop()
        self._stop = None

    def log(self, run: str = "maths/ppo", pause: float = 0.0, **values: float) -> None:
        """Set gauges in this order; ``__`` in a name stands for a slash in verl's key."""
        project, experiment = run.split("/")
        for name, value in values.items():
            name = f"rl_insight_monitor_{name.replace('__', '_')}"  # noqa: PLW2901
            if name not in self._gauges:
                self._gauges[name] = Gauge(name, "x", LABELS, registry=self._registry)
            self._gauges[name].labels(experiment, project).set(value)
            time.sleep(pause)


@pytest.fixture(name="hub")
def _hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.ends()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polled_page, "SETTLE_SECONDS", 0.05)


def record(event: Event) -> tuple[str, int, dict[str, Any]]:
    assert isinstance(event, Record)
    return event.run, event.step, dict(event.values)


def test_a_step_is_whole_though_its_number_is_set_first(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    hub.log(training__global_step=1, critic__score__mean=0.1, actor__entropy=0.9)
    page.poll()
    log = threading.Thread(
        target=lambda: hub.log(
            pause=0.03, training__global_step=2, critic__score__mean=0.2, actor__entropy=0.8
        )
    )
    log.start()
    found: list[Event] = []
    while not found:
        found = page.poll()
    log.join()

    assert [record(event) for event in found] == [
        ("maths/ppo", 2, {"critic_score_mean": 0.2, "actor_entropy": 0.8})
    ]


def test_a_page_that_stands_still_is_read_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    page = MonitorPage(hub.address)
    hub.log(training__global_step=1, critic__score__mean=0.1)
    assert len(page.poll()) == 1
    monkeypatch.setattr(polled_page, "SETTLE_SECONDS", 3600.0)

    assert page.poll() == []


def test_a_validation_before_the_first_step_is_not_a_step(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    hub.log(val_core_gsm8k_reward_mean_1=0.25)
    assert page.poll() == []
    assert page.reported == frozenset()
    hub.log(training__global_step=41, critic__score__mean=0.1)

    assert [record(event) for event in page.poll()] == [
        ("maths/ppo", 41, {"val_core_gsm8k_reward_mean_1": 0.25, "critic_score_mean": 0.1})
    ]


def test_what_was_validated_counts_once(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    found = []
    for step, score in ((1, 0.25), (2, 0.25), (3, 0.5), (4, 0.5)):
        hub.log(training__global_step=step, critic__score__mean=step / 10, val_core_x_mean_1=score)
        found += [record(event)[2].get("val_core_x_mean_1") for event in page.poll()]

    assert found == [0.25, None, 0.5, None]


def test_without_a_step_counter_a_change_is_a_step(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    hub.log(reward=0.1)
    first = page.poll()
    hub.log(reward=0.2)

    assert [record(event)[:2] for event in (*first, *page.poll())] == [("maths/ppo", 1), ("maths/ppo", 2)]


def test_a_run_that_left_the_page_for_a_moment_is_known(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    hub.log(training__global_step=7, critic__score__mean=0.1)
    assert len(page.poll()) == 1
    hub.begins()
    assert page.poll() == []
    hub.log(training__global_step=7, critic__score__mean=0.1)

    assert page.poll() == []


def test_a_step_counter_that_appears_late_loses_no_step(hub: Hub) -> None:
    page = MonitorPage(hub.address)
    hub.log(reward=0.1)
    page.poll()
    hub.log(training__global_step=1, critic__score__mean=0.1)

    assert [record(event)[:2] for event in page.poll()] == [("maths/ppo", 1)]

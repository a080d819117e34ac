"""*Tutorial*, of pages of prometheus_client: polled by the run exporter, or scraped by Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from typing_extensions import Self

from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.grafana.drawn import drawing
from tests.grafana.queries import Json, View, ask, panels_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RUN = "ppo/by-hand"
REWARD, SECONDS, BYTES = 0.25, 3.0, 2.0**34
BY_US, BY_PROMETHEUS = "polls it: a run with alerts", "scrapes it: charts only"
NO_CURVES = {"Average reward": [], "Training steps": [], "Sample generation": [], "GPU memory": []}


class Trainer:
    """Takes a step each half second until it is left; ``address`` is that of its page."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._steps = Counter("verl_training_steps_total", "x", registry=registry)
        self._reward = Gauge("verl_average_reward", "x", registry=registry)
        self._seconds = Histogram("verl_sample_generation_seconds", "x", registry=registry)
        self._memory = Gauge("verl_gpu_memory_used_bytes", "x", ["gpu"], registry=registry)
        self._server, self._serving = start_http_server(0, "127.0.0.1", registry)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._stop = Event()
        self._thread = Thread(target=self._train)

    def _train(self) -> None:
        while not self._stop.wait(0.5):
            self._reward.set(REWARD)
            self._memory.labels("0").set(BYTES)
            self._memory.labels("1").set(BYTES / 2)
            for _ in range(4):
                self._seconds.observe(SECONDS)
            self._steps.inc()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()


class Scene:
    """Two trainers, of which one is polled and the other scraped."""

    def __init__(self, stack: Stack, scraped: str) -> None:
        self.stack, self.scraped, self._began = stack, scraped, time.time()
        self.url = f"http://{stack.config.address('prometheus')}"
        file = stack.state.rendered / "grafana/generated/dashboards/tutorial.json"
        self.dashboard: Json = json.loads(file.read_text())

    def view(self, run: str) -> View:
        return View(self._began, time.time(), {"run": run}, interval=1)

    def last(self, title: str, run: str) -> list[float]:
        """The last value of each curve."""
        (panel,) = (each for each in panels_of(self.dashboard) if each["title"] == title)
        answers = (ask(self.url, target, self.view(run)) for target in panel["targets"])
        return [float(series["values"][-1][1]) for answer in answers for series in answer["result"]]


@pytest.fixture(name="scene", scope="module", params=MAINLY_NEWEST)
def _scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("tutorial")
    with Trainer() as polled, Trainer() as scraped:
        pages = [{"url": f"http://{polled.address}/metrics", "run": RUN}]
        job = {"job": "by-hand", "targets": [scraped.address], "interval": "1s"}
        runs = {"path": str(folder / "runs"), "pages": pages}
        with Stack(folder, request.param, runs=runs, scrape=[job], intervals={"scrape": "1s"}) as stack:
            scene = Scene(stack, scraped.address)
            stack.wait_until(lambda: stack.query("rate(verl_sample_generation_seconds_count[10s])"))
            several = f'count_over_time(rl_sample_generation_seconds{{run="{RUN}"}}[1m]) > 2'
            stack.wait_until(lambda: stack.query(several))
            yield scene


@pytest.mark.parametrize("way", ["polled", "scraped"])
def test_the_four_charts_show_a_page_however_it_is_read(scene: Scene, way: str) -> None:
    run = RUN if way == "polled" else scene.scraped
    (steps,) = scene.last("Training steps", run)
    mean, *p95 = scene.last("Sample generation", run)

    assert scene.last("Average reward", run) == [REWARD]
    assert scene.last("GPU memory", run) == [BYTES]
    assert steps >= 1
    assert mean == pytest.approx(SECONDS)
    assert bool(p95) == (way == "scraped")
    assert all(2.5 < value <= 5 for value in p95), "the bucket of prometheus_client that 3 s falls into"


def test_its_variable_offers_each_page_once(scene: Scene) -> None:
    (variable,) = scene.dashboard["templating"]["list"]
    query = variable["query"]["query"].removeprefix("query_result(").removesuffix(")")

    assert [each["metric"] for each in scene.stack.query(query)] == [{"page": RUN}, {"page": scene.scraped}]


def test_a_page_says_who_reads_it_and_no_page_says_what_to_do(scene: Scene) -> None:
    with drawing() as pen:
        found = pen.show(scene.dashboard, scene.url, scene.view(RUN))
        rows = {
            row["run or page"]["text"]: (row["run exporter"]["text"], row["Prometheus"]["text"])
            for row in found["Pages of trainers"]
        }
        assert rows == {RUN: (BY_US, ""), scene.scraped: ("", BY_PROMETHEUS)}

        alone = json.loads(json.dumps(scene.dashboard).replace("rl_run_info{", 'rl_run_info{run!~\\".*\\",'))
        (row,) = pen.show(alone, scene.url, scene.view(RUN))["Pages of trainers"]
        assert (row["run exporter"]["text"], row["Prometheus"]["text"]) == ("", BY_PROMETHEUS)

        before = View(0, 60, {"run": RUN}, interval=1)
        assert pen.show(scene.dashboard, scene.url, before) == {**NO_CURVES, "Pages of trainers": []}
        said = pen.browser.tell("document.body.innerText")
        assert "Fix: name it in config.yaml (runs: {pages: [{url:" in said

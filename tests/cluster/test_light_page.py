"""The light page of a hub: runs of agents in its list, each with a page of its own, beside runs read here."""

from __future__ import annotations

import json
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from exporter.runs.light import formatting
from stepwatch.__main__ import main
from stepwatch.system import http_client
from tests.cluster.hub import Hub
from tests.native.installation import VERSIONS
from tests.real import AlertmanagerServer
from tests.real.remote_write import Series, send
from tests.real.waiting import eventually
from tests.runs.lines import append, console, measured
from tests.runs.test_main import Exporter

pytestmark = pytest.mark.e2e

NAME = "ppo/<b>sick</b>"
HERE = "ppo/here"
SECONDS, STEPS = 600, 120
"""Of the past of a run when it is first sent: a step each five seconds."""

(STALE,) = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))
"""Prometheus' mark for the end of a series."""

Run = dict[str, str]
SICK: Run = {"run": NAME, "node": "n<1>", "cluster": "night"}
TWIN: Run = {"run": NAME, "node": "n2", "cluster": "day"}
ENDED: Run = {"run": "ppo/ended", "node": "n2"}
SHARED: Run = {"run": HERE, "node": "n3"}


def gauge(run: Run, metric: str, points: list[tuple[float, float]], **labels: str) -> Series:
    return {"__name__": metric, "job": "runs", "instance": f"{run['node']}:9410", **run, **labels}, points


def samples(run: Run, times: list[float], begun: float, *, kl: float, state: str = "running") -> list[Series]:
    """What an agent sends of a run at these times; from the middle of its past on its KL is that high."""
    steps = [(at, float(int((at - begun) / SECONDS * STEPS))) for at in times]
    high = [(at, kl if step > STEPS / 2 else 0.05) for at, step in steps]

    def always(value: float) -> list[tuple[float, float]]:
        return [(at, value) for at in times]

    return [
        gauge(run, "rl_run_info", always(1), framework="verl", source="verl_console"),
        *(
            gauge(run, "rl_run_state", always(each == state), state=each)
            for each in ("running", "finished", "failed")
        ),
        gauge(run, "rl_step", steps),
        gauge(run, "rl_total_steps", always(1000)),
        gauge(run, "rl_run_start_timestamp_seconds", always(begun)),
        gauge(run, "rl_last_step_timestamp_seconds", [(at, at) for at in times]),
        gauge(
            run, "rl_run_mark_timestamp_seconds", always(begun + SECONDS / 4), note="a <i>new</i> data set"
        ),
        gauge(run, "rl_kl", high),
        gauge(run, "rl_min_over_steps", high, signal="kl", steps="3"),
        gauge(run, "rl_start", always(0.05), signal="kl"),
        gauge(run, "rl_noise", always(0.01), signal="kl"),
        gauge(run, "rl_entropy", always(0.5)),
    ]


class Agents:
    """Sends what agents of three nodes send; ``keep`` sends what has come since."""

    def __init__(self, hub: Hub) -> None:
        self._url, self._begun = f"{hub.url}/api/v1/write", time.time() - SECONDS
        self.silent: list[Run] = []
        self._send([self._begun + SECONDS / STEPS * step for step in range(STEPS)])

    def keep(self) -> None:
        self._send([time.time()])

    def end(self, run: Run) -> None:
        """Send what an agent sends last of series that are gone."""
        self.silent.append(run)
        now = time.time()
        last = samples(run, [now], self._begun, kl=0)
        send(self._url, [(labels, [(now, STALE)]) for labels, _ in last])

    def _send(self, times: list[float]) -> None:
        for run, kl, state in (
            (SICK, 3.0, "running"),
            (TWIN, 0.05, "running"),
            (ENDED, 0.05, "finished"),
            (SHARED, 0.05, "running"),
        ):
            if run not in self.silent:
                send(self._url, samples(run, times, self._begun, kl=kl, state=state))


class Page:
    """The light page of an exporter on the hub."""

    def __init__(self, exporter: Exporter) -> None:
        self.url = f"http://127.0.0.1:{exporter.port}"

    def json(self, path: str) -> Any:
        return json.loads(http_client.read(f"{self.url}/{path}") or "null")

    def runs(self) -> dict[tuple[str, str], Any]:
        return {(each["run"], each["cluster"]): each for each in (self.json("api/v1/runs") or {})["runs"]}

    def text(self, path: str) -> str:
        return http_client.read(f"{self.url}/{path}") or ""


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(name="hub", scope="module")
def _hub(folder: Path) -> Iterator[Hub]:
    hub = Hub(VERSIONS["newest"][0], folder / "hub")
    texts = folder / "hub/prometheus/generated/rules/texts.yml"
    texts.write_text(texts.read_text().replace("interval: 1m", "interval: 1s"))
    with hub:
        yield hub


@pytest.fixture(name="agents", scope="module")
def _agents(hub: Hub) -> Agents:
    return Agents(hub)


@pytest.fixture(name="page", scope="module")
def _page(hub: Hub, agents: Agents, folder: Path) -> Iterator[Page]:
    log = folder / f"runs/{HERE}.log"
    log.parent.mkdir(parents=True)
    append(log, "".join(console(step, measured(step)) for step in range(1, 9)))
    panels = folder / "hub/exporter/generated/panels.json"
    exporter = Exporter(
        "--path",
        folder / "runs",
        "--prometheus-url",
        hub.url,
        "--panels",
        panels,
        "--runs-of-agents",
        "true",
        "--agents-page",
        "http://{node}:9410/run/{run}",
    )
    page = Page(exporter)

    def known() -> bool:
        agents.keep()
        text = http_client.read(f"{page.url}/api/v1/runs")
        runs = page.runs() if text and "nearest" not in text else {}
        return (HERE, "") in runs and any(each["alerts"] for each in runs.values())

    try:
        eventually(known, pause=0.5)
        yield page
    finally:
        exporter.process.kill()
        exporter.process.communicate()


def test_runs_of_agents_are_in_the_list_each_by_its_cluster_and_own_ones_once(page: Page):
    runs = page.runs()
    assert set(runs) == {(NAME, "night"), (NAME, "day"), ("ppo/ended", ""), (HERE, "")}
    sick, twin, ended, here = (runs[NAME, "night"], runs[NAME, "day"], runs["ppo/ended", ""], runs[HERE, ""])
    assert (sick["state"], sick["framework"], sick["total_steps"]) == ("running", "verl", 1000)
    assert sick["step"] >= STEPS - 1
    assert (sick["nodes"], twin["nodes"], ended["nodes"], here["nodes"]) == (["n<1>"], ["n2"], ["n2"], ["n3"])
    assert [each["alert"] for each in sick["alerts"]][:1] == ["KLExplosion"]
    assert (sick["severity"], twin["alerts"], here["alerts"]) == ("critical", [], [])
    assert ended["state"] == "finished"
    assert here["step"] == 8, "what is read here is shown as it is here"
    kl = next(each for each in sick["signals"] if each["signal"] == "kl")
    assert (kl["value"], kl["state"], kl["alerts"]) == (3.0, "critical", ["KLExplosion"])
    assert kl["critical"]["high"] == pytest.approx(1.05)
    listed = page.text("")
    assert "of <bdi>night</bdi>" in listed
    own_page = "http://{}:9410/run/ppo%2F"
    sick_page = f"{own_page.format('n%3C1%3E')}%3Cb%3Esick%3C%2Fb%3E"
    assert f'on <a href="{sick_page}"><bdi>n&lt;1&gt;</bdi></a>' in listed
    assert f'on this machine, <a href="{own_page.format("n3")}here"><bdi>n3</bdi></a>' in listed
    assert NAME not in listed, "escaped"


def curve(page: Page, agents: Agents, path: str) -> Any:
    """The curve of a signal, once Prometheus was asked for it."""
    found: list[Any] = []

    def there() -> bool:
        agents.keep()
        found[:] = [page.json(path)]
        return len((found[0] or {}).get("points") or ()) > STEPS / 4

    eventually(there, pause=0.5)
    return found[0]


def test_the_page_of_a_run_has_its_curves_limits_alerts_and_marks(page: Page, agents: Agents):
    series = curve(page, agents, formatting.series(NAME, "kl", "night"))
    values = dict(series["points"])
    assert {value for step, value in values.items() if step < STEPS / 2 - 5} == {0.05}
    assert {value for step, value in values.items() if STEPS / 2 + 5 < step < STEPS} == {3.0}
    assert "KLExplosion" in {each["name"] for each in series["limits"]}
    assert max(dict(curve(page, agents, formatting.series(NAME, "kl", "day"))["points"]).values()) == 0.05

    path = formatting.page(NAME, "night")
    eventually(lambda: "<summary>Runbook</summary>" in page.text(path), pause=0.5)
    shown = page.text(path)
    for words in (
        "KL to the reference is exploding",
        "KLExplosion, critical: steps ",
        "limit of KLExplosion: 1.05",
        "mark: a &lt;i&gt;new&lt;/i&gt; data set",
        "are on <bdi>n&lt;1&gt;</bdi>",
        '<h2 class="part">Last steps</h2>',
    ):
        assert words in shown, words
    assert "KLExplosion" not in page.text(formatting.page(NAME, "day")).partition("<figure")[0]


def test_links_of_messages_lead_to_the_right_run(page: Page):
    path = f"run/{quote(NAME, safe='')}"
    assert "of <bdi>day</bdi>" in page.text(f"{path}?cluster=day")
    with pytest.raises(urllib.error.HTTPError, match="Multiple Choices") as several:
        urllib.request.urlopen(f"{page.url}/{path}", timeout=30)
    which = several.value.read().decode()
    assert "Which run?" in which
    assert "cluster=day" in which
    assert "cluster=night" in which
    # An alert about a run without a cluster has that of the hub's external labels when it is sent.
    assert "reads a run of this name too" in page.text(f"run/{quote(HERE, safe='')}?cluster=hub")


def test_orders_about_a_run_of_an_agent_are_taken_or_say_where_they_belong(
    page: Page, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("STEPWATCH_STATE", str(folder / "stack"))
    config, exporter = folder / "config.yaml", urlsplit(page.url).port
    (folder / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    with AlertmanagerServer("0.31", folder) as alertmanager:
        ports = {"exporter": exporter, "alertmanager": alertmanager.port}
        config.write_text(json.dumps({"role": "hub", "ports": ports}))
        assert main(["silence", "--config", str(config), ENDED["run"]]) == 0
        (silence,) = json.loads(http_client.read(f"{alertmanager.url}/api/v2/silences") or "[]")
    assert [each["value"] for each in silence["matchers"]] == [ENDED["run"]]

    assert main(["mark", "--config", str(config), ENDED["run"]]) == 2
    said = capsys.readouterr().err
    run = ENDED["run"]
    assert said == f"Nothing was marked. {run} is read on n2. Fix: `make mark RUN={run}` there.\n"
    assert main(["mark", "--config", str(config), "ppo/unknown"]) == 2
    assert "There is no run named ppo/unknown." in capsys.readouterr().err


def test_a_run_of_a_node_that_is_lost_stays_and_says_so(page: Page, agents: Agents):
    for run in (TWIN, ENDED):
        agents.end(run)
    eventually(lambda: not page.runs()[NAME, "day"]["arrives"], pause=0.5)
    # It is forgotten, as where its log is read.
    eventually(lambda: ("ppo/ended", "") not in page.runs(), pause=0.5)
    assert "No more data arrives from this run" in page.text(formatting.page(NAME, "day"))
    assert page.runs()[NAME, "night"]["arrives"]

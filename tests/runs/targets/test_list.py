"""The list that Prometheus gets: which addresses, with which labels, and when each leaves."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.files import notice
from exporter.runs.targets import discovery, target
from exporter.runs.targets.files import ListFiles
from exporter.runs.targets.target import AddressError, Allowed
from stepwatch.config import Config
from tests.runs.lines import append, console, measured
from tests.runs.served import Serve, Served
from tests.runs.speaking import Speaking, says

PAGE = says(b"vllm_requests 3\n", Content_Type="text/plain; version=0.0.4")
ROLLOUT = {"job": "rollout", "role": "rollout"}
Write = Callable[[Path, "str | bytes"], None]


class Engine(Speaking):
    """A server with a page of metrics, by its address."""

    def __init__(self, speak: Callable[[BaseHTTPRequestHandler], object] = PAGE) -> None:
        super().__init__(speak)
        self.address = self.url.removeprefix("http://")


@pytest.fixture(name="engine")
def _engine() -> Iterator[Engine]:
    with suppress(OSError), Engine() as engine:
        yield engine


class Listed:
    """An exporter, and the file of verl that it reads."""

    def __init__(self, serve: Serve, path: Path, write: Write) -> None:
        self.path, self._serve, self._write = path, serve, write

    def serve(self, *flags: str, forget: float = 600.0) -> Served:
        files = json.dumps([str(self.path)])
        return self._serve(f"--discovery-files={files}", f"--discovery-forget-after={forget}", *flags)

    def write(self, *servers: str) -> None:
        job = {"job_name": "rollout", "static_configs": [{"targets": list(servers)}]}
        self._write(self.path, yaml.dump({"scrape_configs": [job]}))


@pytest.fixture(name="verl")
def _verl(serve: Serve, tmp_path: Path, write: Write) -> Listed:
    return Listed(serve, tmp_path / "prometheus.yml", write)


# which addresses

ALLOWED = {
    "10.0.0.7:41233": "10.0.0.7:41233",
    "172.31.255.255:1": "172.31.255.255:1",
    "192.168.1.1:65535": "192.168.1.1:65535",
    "localhost:8000": "127.0.0.1:8000",
    "[::1]:8000": "[::1]:8000",
    "[fd00:0:0::7]:8000": "[fd00::7]:8000",
    "[::ffff:10.0.0.8]:8000": "10.0.0.8:8000",
    "10.0.0.9:08000": "10.0.0.9:8000",
}
ELSEWHERE = (
    *("8.8.8.8:80", "172.32.0.1:80", "169.254.169.254:80", "100.64.0.1:80", "[2001:db8::1]:80"),
    *("[fe80::1]:80", "[::ffff:8.8.8.8]:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80"),
    "[fd00:c1::a9fe:a9fe]:80",
)
INVALID = (
    *("", "10.0.0.7", "10.0.0.7:", "10.0.0.7:0", "10.0.0.7:65536", "10.0.0.7:٣", "10.0.0.7:80\n"),
    *(" 10.0.0.7:80", "http://10.0.0.7:80", "10.0.0.7:80/metrics", "user@10.0.0.7:80", "10.0.0:80"),
    *("010.0.0.1:80", "0x0a000007:80", "node-1:80", "LOCALHOST:80", "::1:80", "[::1%lo]:80", "[::1]"),
    *("0.0.0.0:80", "[::]:80", "224.0.0.1:80", "1" * 100_000),
)


def test_only_addresses_of_allowed_networks_are_listed_spelt_in_one_way_and_the_others_named_once(
    verl: Listed, logged: list[str]
) -> None:
    verl.write(*ALLOWED, *ELSEWHERE, *INVALID)
    served = verl.serve()
    served.lists(*ALLOWED.values())
    assert served.errors() == {("address", "verl_file"): len(ELSEWHERE) + len(INVALID)}
    words = "\n".join(logged)
    assert words.count("in none of the allowed networks. Fix: ") == len(ELSEWHERE)
    assert words.count("is not an IP address with a port") == len(INVALID)
    assert "discovery.allow" in words
    assert max(map(len, logged)) < 300


def test_a_network_of_ones_own_takes_the_place_of_the_usual_ones_but_admits_no_metadata(verl: Listed) -> None:
    passed = "100.127.255.255:80", "[fd20:ce::254]:80", "[2001:db8::1]:80"
    verl.write(*passed, "10.0.0.7:80", "[fd00:ec2::254]:80")
    networks = json.dumps(["100.64.0.0/10", "::/0", "fd20:ce::254"])
    verl.serve(f"--discovery-allow={networks}").lists(*passed)


@given(st.one_of(st.text(), st.ip_addresses().map(lambda host: f"[{host}]:80")))
def test_whatever_passes_is_an_address_of_an_allowed_network(text: str) -> None:
    with suppress(AddressError):
        host, _, port = Allowed().checked(text).rpartition(":")
        found = ipaddress.ip_address(host.strip("[]"))
        assert found.is_loopback or found.is_private
        assert 0 < int(port) < 65536


def test_a_flood_of_refused_addresses_hides_no_other_fault(
    verl: Listed, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr(notice, "MOST_HOURLY", 10)
    verl.write("10.0.0.7:1", *(f"8.8.8.{number}:1" for number in range(30)))
    served = verl.serve()
    served.lists("10.0.0.7:1")
    assert len(logged) == 10
    verl.path.unlink()
    served.until(lambda: any("does not exist" in words for words in logged))


def test_a_list_without_end_is_cut_and_what_is_listed_has_priority(
    verl: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "MOST", 20)
    monkeypatch.setattr(discovery, "MOST", 20)
    verl.write(*(f"10.0.0.7:{port}" for port in range(1, 40)))
    served = verl.serve()
    first = [f"10.0.0.7:{port}" for port in range(1, 21)]
    served.lists(*first)
    served.register({"job_name": "vllm", "targets": ["10.0.0.8:1"]})
    served.until(lambda: served.errors().keys() == {("too_many", "verl_file"), ("too_many", "registered")})
    served.lists(*first)


# the answer


def test_the_answer_is_http_sd_and_comes_once_all_logs_are_read(serve: Serve, folder: Path) -> None:
    append(folder / 'a"é.log', "LLMServerManager: ['10.0.0.7:1', '10.0.0.8:1']\n", console(1, measured(1)))
    append(folder / "b.log", "Router launched at 10.0.0.9:2\n")
    served = serve(looks=False)
    time.sleep(0.1)
    assert served.ask("GET", "/sd/rollout").status == 503
    served.looks()
    served.until(lambda: served.ask("GET", "/sd/rollout").status == 200)
    _, groups, headers = served.ask("GET", "/sd/rollout")
    assert headers["Content-Type"] == "application/json"
    assert groups == [
        {"targets": ["10.0.0.9:2"], "labels": {**ROLLOUT, "__metrics_path__": "/engine_metrics"}},
        {"targets": ["10.0.0.7:1", "10.0.0.8:1"], "labels": {**ROLLOUT, "run": 'a"é'}},
    ]


def test_from_a_container_loopback_is_the_machine_around_it(verl: Listed, engine: Engine) -> None:
    verl.write(f"127.0.0.2:{engine.port}")
    served = verl.serve("--loopback=localhost")
    served.lists(f"localhost:{engine.port}")
    served.until(lambda: engine.asked)


def test_verls_file_counts_more_than_who_registers_the_same_address(verl: Listed, engine: Engine) -> None:
    verl.write(engine.address)
    served = verl.serve()
    body = {"job_name": "mine", "targets": [{"target": engine.address, "labels": {"run": "theirs"}}]}
    assert served.register(body).status == 200
    both = {**ROLLOUT, "rl_insight_job": "mine", "run": "theirs"}
    served.until(lambda: served.listed()[engine.address] == both)


@pytest.mark.parametrize("broken", ["targets", "_look"])
def test_what_fails_unforeseen_is_counted_and_costs_no_targets(
    verl: Listed, monkeypatch: pytest.MonkeyPatch, broken: str, logged: list[str]
) -> None:
    verl.write("10.0.0.7:1")
    served = verl.serve()
    served.lists("10.0.0.7:1")
    owner: type = ListFiles if broken == "targets" else discovery.Discovery
    with monkeypatch.context() as patched:
        patched.setattr(owner, broken, lambda *_: {}["a"])
        served.register({"job_name": "vllm", "targets": ["10.0.0.8:1"]})
        source = "verl_file" if broken == "targets" else "discovery"
        served.until(lambda: ("fault", source) in served.errors())
        assert "10.0.0.7:1" in served.listed()
    served.lists("10.0.0.7:1", "10.0.0.8:1")
    assert any("KeyError, an internal error of Stepwatch" in words for words in logged)


def test_what_was_found_is_counted_by_source(verl: Listed, engine: Engine) -> None:
    verl.write(engine.address)
    served = verl.serve()
    served.register({"job_name": "vllm", "targets": [engine.address, "127.0.0.1:1"]})
    counted = {("registered", "served"): 2, ("verl_file", "served"): 1}
    served.until(lambda: served.errors("stepwatch_discovery_targets") == counted)
    read = served.errors("stepwatch_discovery_read_timestamp_seconds")
    assert read.keys() == {("registered",), ("verl_file",)}
    assert all(time.time() - 60 < at <= time.time() for at in read.values())


# when a target leaves


def test_a_lost_server_leaves_after_its_time_and_returns(verl: Listed, engine: Engine) -> None:
    with ExitStack() as running:
        lost = Engine()
        running.enter_context(lost)
        verl.write(engine.address, lost.address)
        served = verl.serve(forget=1.0)
        served.until(lambda: lost.asked and engine.asked)
        running.close()
        gone = time.monotonic()
        served.lists(engine.address)
        assert time.monotonic() - gone > 0.8
        back = socket.create_server(("127.0.0.1", lost.port))
        with closing(back):
            served.lists(engine.address, lost.address)


def test_one_that_never_took_a_connection_leaves_before_anyone_is_notified(
    verl: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Config().alerts.EngineGone.for_.seconds > discovery.PROVE_SECONDS
    for span in ("0s", "5m", "1h"):
        config = Config.model_validate({"alerts": {"EngineGone": {"for": span}}})
        assert config.alerts.EngineGone.for_.seconds < config.server_seconds
    monkeypatch.setattr(discovery, "PROVE_SECONDS", 0.5)
    verl.write("127.0.0.1:1")
    served = verl.serve()
    served.lists("127.0.0.1:1")
    served.lists()


@pytest.mark.parametrize("end", ["run", "unlisted", "file"])
def test_a_server_whose_end_is_known_leaves_once_it_is_gone_and_not_before(
    verl: Listed, folder: Path, end: str
) -> None:
    with ExitStack() as running:
        engine = Engine()
        running.enter_context(engine)
        if end == "run":
            append(folder / "a.log", f"LLMServerManager: ['{engine.address}']\n", console(1, measured(1)))
        else:
            verl.write(engine.address)
        served = verl.serve()
        served.until(lambda: engine.asked and engine.address in served.listed())
        if end == "run":
            append(folder / "a.log", "Final validation metrics: {}\n")
        elif end == "unlisted":
            verl.write("10.0.0.7:1")
            served.until(lambda: "10.0.0.7:1" in served.listed())
        else:
            verl.path.unlink()
        time.sleep(0.5)
        assert engine.address in served.listed()
        running.close()
        served.until(lambda: engine.address not in served.listed())


def test_who_knows_the_run_knows_whether_it_is_over(verl: Listed, folder: Path) -> None:
    append(folder / "a.log", "LLMServerManager: ['127.0.0.1:1']\n", console(1, measured(1)))
    verl.write("127.0.0.1:1")
    served = verl.serve()
    verl.path.unlink()
    served.until(lambda: ("gone", "verl_file") in served.errors())
    assert served.listed() == {"127.0.0.1:1": {**ROLLOUT, "run": "a"}}


# pages and connections


def test_a_server_without_a_page_is_listed_once_it_has_one(verl: Listed, logged: list[str]) -> None:
    status = 404

    def speak(handler: BaseHTTPRequestHandler) -> None:
        says(b"x" * 200_000, status)(handler)

    with Engine(speak) as engine:
        verl.write(engine.address)
        served = verl.serve()
        served.lists()
        assert served.errors("stepwatch_discovery_targets") == {("verl_file", "pageless"): 1}
        assert served.errors() == {("no_page", "verl_file"): 1}
        assert f"servers of {engine.address} have no page /metrics, so Prometheus does not" in logged[0]
        assert "rollout.disable_log_stats=False for vLLM" in logged[0]
        status = 200
        served.lists(engine.address)
        status = 404  # a page that was there and is no more is a matter for alerts
        asked = len(engine.asked)
        time.sleep(0.5)
        assert (len(engine.asked), len(served.listed())) == (asked, 1)
        assert (engine.asked[0].path, engine.asked[0].headers["Host"]) == ("/metrics", engine.address)


def test_one_that_redirects_or_has_no_page_is_left_out_and_a_busy_one_is_not(verl: Listed) -> None:
    with ExitStack() as running:
        engines = {
            status: running.enter_context(Engine(says(b"", status, Location="http://127.0.0.1:1/")))
            for status in (200, 302, 307, 404, 500, 503)
        }
        verl.write(*(engine.address for engine in engines.values()))
        served = verl.serve()
        served.until(lambda: all(len(each.asked) > (status != 200) for status, each in engines.items()))
        served.lists(*(engines[status].address for status in (200, 500, 503)))


def found(port: int, path: str = "") -> tuple[bool, int | None] | None:
    return asyncio.run(discovery.probe("127.0.0.1", port, "a", path))


@pytest.mark.parametrize("speaks", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200"])
def test_a_server_that_says_nothing_usable_is_there(speaks: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def say() -> None:
            with closing(server.accept()[0]) as client:
                client.recv(1000)
                client.sendall(speaks)

        Thread(target=say, daemon=True).start()
        status = 200 if speaks.startswith(b"HTTP") else None
        assert found(server.getsockname()[1], "/metrics") == (True, status)


def test_a_connection_that_reaches_itself_is_not_taken_and_without_files_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Itself(socket.socket):
        def connect(self, _: object) -> None:
            self.bind(("127.0.0.1", 0))
            super().connect(self.getsockname())

    def none_left(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(discovery.socket, "socket", Itself)
    assert found(1) == (False, None)
    monkeypatch.setattr(Itself, "connect", none_left)
    assert found(1) is None


@pytest.mark.slow
def test_two_thousand_servers_are_called_a_few_at_a_time_and_all_of_them(
    verl: Listed, engine: Engine
) -> None:
    # only the engine's own address takes calls: all else on loopback refuses
    verl.write(engine.address, *(f"127.{n >> 8}.{n & 255}.1:{engine.port}" for n in range(2, 2002)))
    served = verl.serve()
    served.until(lambda: len(served.listed()) == 2001)
    verl.write(engine.address)
    served.lists(engine.address)
    assert len(list(Path("/proc/self/fd").iterdir())) < 400

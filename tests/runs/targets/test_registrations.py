"""rl-insight's server API by HTTP: who may register what, and how long it is known."""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.app import MOST_BODY
from exporter.runs.files import notice
from exporter.runs.files.state import State
from exporter.runs.targets import registrations
from exporter.runs.targets.registrations import (
    RESULTS,
    RateLimit,
    RefusedError,
    Registration,
    Registrations,
    read_request,
)
from exporter.runs.targets.target import Allowed
from tests.runs.served import TARGETS, Serve, Served

ORDER = {"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000", "labels": {"replica": "0"}}]}


def outcomes(served: Served) -> dict[str, float]:
    """How many requests came to which end."""
    return {result: count for (result,), count in served.errors("stepwatch_registrations_total").items()}


def test_it_answers_as_the_server_of_rl_insight_does(serve: Serve) -> None:
    served = serve("--prometheus-port=9090")
    assert served.ask("GET", "/healthz")[:2] == (200, {"status": "ok"})
    services = {"status": "ok", "otlp_port": None, "prometheus_port": 9090, "grafana_port": None}
    assert served.ask("GET", "/api/v1/services")[:2] == (200, services)
    taken = {"status": "ok", "prometheus_reloaded": False, "job_name": "vllm", "target_count": 1}
    assert served.register(ORDER)[:2] == (200, {**taken, "config_file": None, "targets_file": None})
    counted = served.scrape().all("stepwatch_registrations_total")
    assert {dict(labels)["result"] for labels in counted} == set(RESULTS)
    wrong = {("GET", TARGETS): 405, ("DELETE", TARGETS): 405, ("POST", "/api/v1/services"): 405}
    wrong |= {("OPTIONS", TARGETS): 405, ("GET", "/api/v1/other"): 404}
    assert {each: served.ask(*each).status for each in wrong} == wrong


def test_what_is_registered_becomes_targets_with_our_labels(serve: Serve) -> None:
    served = serve()
    served.register(ORDER)
    served.register({"targets": ["127.0.0.1:1", "localhost:1"]})
    several = ["10.0.0.8:1", {"target": "[fd00::7]:8000", "labels": {"rack": 2}}]
    more = {"rack": "1", "run": "ppo/gsm8k"}
    served.register({"job_name": "transfer_queue", "targets": several, "labels": more, "later": "ignored"})
    rollout, trainer = ({"job": kind, "role": kind} for kind in ("rollout", "trainer"))
    queue = {**trainer, "rl_insight_job": "transfer_queue", "run": "ppo/gsm8k"}
    wanted = {
        "10.0.0.7:8000": {**rollout, "replica": "0", "rl_insight_job": "vllm"},
        "127.0.0.1:1": {**trainer, "rl_insight_job": "trainer_metrics"},
        "10.0.0.8:1": {**queue, "rack": "1"},
        "[fd00::7]:8000": {**queue, "rack": "2"},
    }
    served.until(lambda: served.listed() == wanted)
    served.register({"job_name": "sglang", "targets": ["10.0.0.7:8000"]})
    served.until(lambda: served.listed()["10.0.0.7:8000"] == {**rollout, "rl_insight_job": "sglang"})


# what may be asked

ONE = {"targets": ["10.0.0.7:1"]}
FOUR, SIX, NINE = ({f"l{n}": "x" for n in numbers} for numbers in (range(4), range(3, 9), range(9)))
SLACK = "xoxb" + "-abcdefghijkl-hunter2mnopq-ABCDEFGHIJKLmnop"
MALFORMED: list[tuple[Any, str]] = [
    (b"", "line 1, column 1"),
    (b'{"targets": [,]}', "line 1, column 14"),
    (b"[]", "The body is not an object"),
    (b"\xff\xfe", "The body is not valid JSON"),
    (b"[" * 60_000, "The body is not valid JSON"),
    (b'{"targets": ' + b"9" * 60_000 + b"}", "The body is not valid JSON"),
    *((asked, "targets is not a list") for asked in ({}, {"targets": []}, {"targets": "10.0.0.7:8000"})),
    ({"targets": [7]}, "targets[0] is not a server"),
    ({"targets": [{}]}, "targets[0].target is not a server"),
    ({**ONE, "job_name": 7}, "job_name"),
    ({**ONE, "job_name": "a\nb"}, "job_name"),
    ({**ONE, "job_name": "x" * 101}, "at most 100"),
]
ADDRESSES = {
    "http://10.0.0.7:1": "targets[1]: 'http://",
    "example.org:80": "not an IP address with a port",
    "me:hunter2@10.0.0.7:8000": "'10.0.0.7:8000' is not",
    "10.0.0.7:1/admin": "targets[1]: '10.0.0.7:1/admin'",
    "169.254.169.254:80": "add it to discovery.allow in config.yaml",
    "8.8.8.8:53": "discovery.allow",
}
LABELS: list[tuple[Any, str]] = [
    (["a"], "labels is not an object"),
    ([], "labels is not an object"),
    *(({name: "x"}, f"'{name}', which Stepwatch gives") for name in sorted(registrations.OURS)),
    ({"__address__": "8.8.8.8:1"}, "begin with no digit"),
    ({"__metrics_path__": "/x"}, "and no __"),
    ({"a-b": "x"}, "'a-b'"),
    ({"a" * 65: "x"}, "at most 64"),
    ({"a": "x" * 101}, "labels.a is not a valid label value"),
    ({"a": "x\ny"}, "labels.a"),
    ({"a": None}, "labels.a"),
    ({"api_token": "hunter2"}, "Expected: labels without secrets"),
    ({"site": SLACK}, "without secrets"),
    (NINE, "9 labels"),
]
REFUSED: list[tuple[Any, str, str]] = [
    *((asked, "malformed", words) for asked, words in MALFORMED),
    *(({"targets": ["10.0.0.7:1", each]}, "address", words) for each, words in ADDRESSES.items()),
    ({"targets": [{"target": "8.8.8.8:1"}]}, "address", "targets[0].target: "),
    *(({**ONE, "labels": labels}, "labels", words) for labels, words in LABELS),
    (
        {"targets": [{"target": "10.0.0.7:1", "labels": SIX}], "labels": FOUR},
        "labels",
        "targets[0].labels has 9 labels. Expected: at most 8",
    ),
]


def test_what_is_not_to_be_read_is_refused_as_a_whole_with_its_place_and_logged_once(
    serve: Serve, logged: list[str]
) -> None:
    served = serve()
    for asked, result, words in REFUSED:
        before = outcomes(served).get(result, 0)
        status, answer, _ = served.register(asked)
        assert (status, outcomes(served)[result] - before) == (400, 1), words
        assert words in answer["detail"]
        assert "hunter2" not in answer["detail"]
        assert "Expected: " in answer["detail"] or result == "address"
    assert served.listed() == {}
    written = len(logged)
    served.register(REFUSED[-1][0])
    assert len(logged) == written
    assert all(line.startswith("127.0.0.1 may not register servers: ") for line in logged)
    assert "hunter2" not in str(logged)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
SERVERS = st.lists(JSON | st.fixed_dictionaries({"target": st.just("10.0.0.7:1") | JSON, "labels": JSON}))
BODIES = st.fixed_dictionaries({"targets": SERVERS | JSON, "labels": JSON, "job_name": JSON})


@given(st.binary() | BODIES.map(lambda asked: json.dumps(asked).encode()))
def test_whatever_comes_is_taken_whole_or_refused_in_words(body: bytes) -> None:
    with suppress(RefusedError):
        for one in read_request(body, Allowed()).values():
            assert not one.labels.keys() & registrations.OURS
            assert all(len(value) <= registrations.LONGEST_VALUE for value in one.labels.values())


def test_a_page_of_a_browser_can_register_nothing(serve: Serve) -> None:
    served = serve()
    refused = served.register(ORDER, Origin="http://localhost:3000")
    assert refused.status == 403
    assert "Expected: no Origin header. Fix: register servers from a program" in refused.body["detail"]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert served.register(ORDER, Content_Type=kind).status == 415
    assert (outcomes(served), served.listed()) == ({"origin": 1, "content_type": 4}, {})


def test_the_size_of_a_request_is_limited_to_a_thousand_servers_of_a_job(serve: Serve) -> None:
    served = serve()
    refused = served.register(b" " * (MOST_BODY + 1))
    assert refused.status == 413
    assert b"at most" in refused.body
    hosts = (f"10.100.200.{n // 9 + 1}:{50_000 + n}" for n in range(1000))
    servers = [{"target": each, "labels": {"replica": str(n)}} for n, each in enumerate(hosts)]
    assert served.register({"job_name": "vllm", "targets": servers}).body["target_count"] == 1000


def test_a_flood_is_answered_when_to_come_again_and_does_not_flood_the_log(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr(notice, "MOST_HOURLY", 10)
    served = serve()
    answers = [served.register({"targets": [f"192.0.2.2:{1 + number}"]}) for number in range(75)]
    late = [answer for answer in answers if answer.status == 429]
    assert len(late) >= 5  # 60 at once, and some more for the time that this took
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in late)
    assert outcomes(served) == {"address": 75 - len(late), "rate": len(late)}
    assert len([words for words in logged if "192.0.2.2" in words]) == 10
    assert any("Too many requests" in words for words in logged)
    assert served.ask("GET", "/healthz").status == 200


def test_requests_are_limited_of_each_client_and_of_all_and_time_gives_them_back() -> None:
    rate = RateLimit()

    def passed(client: str, requests: int, now: float = 0.0) -> int:
        return sum(not rate.wait(client, now) for _ in range(requests))

    assert passed("10.0.0.7", 1000) == passed("10.0.0.8", 60) == 60
    assert passed("10.0.0.7", 100, now=5.0) == 5
    assert passed("10.0.0.7", 100, now=5000.0) == 60
    assert sum(passed(f"10.1.{n // 256}.{n % 256}", 1, 9000.0) for n in range(1000)) == 300
    assert len(rate._left) == 301
    assert passed("10.9.9.9", 1, now=9060.0) == 1
    assert len(rate._left) == 2


# the token

SECRET = "open:sesame"


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


GOOD = (f"Bearer {SECRET}", f"bearer  {SECRET}", basic(f"any:{SECRET}"))
WRONG = (
    *("", SECRET, "Bearer", "Bearer open", f"Bearer {SECRET}s", f"Digest {SECRET}", "Basic ???", "Basic ÿ"),
    *("Bearer ÿ", basic(SECRET), basic(f"{SECRET}:any")),
)


@pytest.fixture(name="token")
def _token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o640)
    return file


def test_with_a_token_only_who_shows_it_registers(serve: Serve, token: Path) -> None:
    served = serve("--token-file", token)
    for shown in GOOD:
        assert served.register(ORDER, Authorization=shown).status == 200
    for shown in WRONG:
        refused = served.register(ORDER, Authorization=shown)
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic")
        assert "sesame" not in str(refused.body)
    assert served.register(ORDER).status == 401
    token.write_text("another")
    assert served.register(ORDER, Authorization="Bearer another").status == 200
    assert served.register(ORDER, Authorization=GOOD[0]).status == 401
    assert served.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "content", [None, "pipe", b"", b" \n", b"two words", b"\xff\xfe", b"x" * 10_000, b"a\nb"]
)
def test_a_file_without_a_token_lets_no_one_in_and_the_log_says_why_once(
    serve: Serve, token: Path, content: bytes | str | None, logged: list[str]
) -> None:
    token.unlink()
    if content == "pipe":
        os.mkfifo(token)
    elif isinstance(content, bytes):
        token.write_bytes(content)
    served = serve("--token-file", token)
    refused = served.register(ORDER, Authorization="Bearer ")
    assert (refused.status, outcomes(served)) == (503, {"token_file": 1})
    assert str(token) not in str(refused.body)
    assert len([words for words in logged if str(token) in words]) == 1


def test_a_token_that_every_user_may_read_is_reported_with_the_fix(
    serve: Serve, token: Path, logged: list[str]
) -> None:
    token.chmod(0o644)
    served = serve("--token-file", token)
    assert f"chmod o-rwx {token}" in logged[0]
    assert served.register(ORDER, Authorization=f"Bearer {SECRET}").status == 200


# the table


def some(*ports: int, job: str = "vllm", node: str = "10.0.0.7") -> dict[str, Registration]:
    return {f"{node}:{port}": Registration(job, {}, 1.0) for port in ports}


def known(table: Registrations) -> set[str]:
    return {target.address for target in table.targets()}


def test_a_full_table_takes_in_no_one_for_a_living_server_but_for_the_longest_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registrations, "MOST", 6)
    monkeypatch.setattr(registrations, "MOST_OF_JOB", 3)
    table, silent = Registrations(State(None), Allowed()), dict[str, float]()
    table.silence = lambda address: silent.get(address, 0.0)
    assert table.add(some(1, 2, 3)) == 3
    with pytest.raises(RefusedError, match="at most 3 of one job") as refused:
        table.add(some(1, 4))
    assert (refused.value.result, refused.value.status) == ("full", "503 Service Unavailable")
    table.add(some(1, 2, 3, job="b", node="10.0.0.8"))
    with pytest.raises(RefusedError, match="at most 6 in all"):
        table.add(some(9, job="c"))
    assert table.add(some(3)) == 3  # one that is there already
    before = known(table)
    silent.update({"10.0.0.8:1": 600.0, "10.0.0.8:2": 1200.0, "10.0.0.8:3": 599.0})
    table.add(some(9, job="c"))
    assert known(table) == before - {"10.0.0.8:2"} | {"10.0.0.7:9"}
    with pytest.raises(RefusedError):
        table.add(some(10, 11, job="c"))
    assert known(table) == before - {"10.0.0.8:2"} | {"10.0.0.7:9"}


def test_who_has_been_unreachable_for_a_day_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "FORGET_SECONDS", -1.0)
    table = Registrations(State(None), Allowed())
    table.add(some(1, 2, 3))
    table.silence = lambda address: 24 * 3600.0 - (not address.endswith(":2"))
    table.maintain()
    assert known(table) == {"10.0.0.7:1", "10.0.0.7:3"}


def test_all_that_may_be_registered_is_there_after_a_restart_as_far_as_it_is_allowed(
    tmp_path: Path, logged: list[str]
) -> None:
    names = [str(n).rjust(registrations.LONGEST_NAME, "x") for n in range(registrations.MOST_LABELS)]
    signs = ('"', "\u8bad", "\U0001f600") * registrations.LONGEST_VALUE
    labels = dict.fromkeys(names, "".join(signs)[: registrations.LONGEST_VALUE])
    table = Registrations(State(tmp_path), Allowed())
    for odd in (0, 1):
        job = f"{odd}".ljust(registrations.LONGEST_JOB, "\u8bad")
        hosts = (f"10.0.{n // 250}.{n % 250}:65535" for n in range(odd, registrations.MOST, 2))
        table.add({host: Registration(job, labels, 1e9 / 7) for host in hosts})
    table.maintain()
    again = Registrations(State(tmp_path), Allowed())
    assert list(again.targets()) == list(table.targets())
    assert len(known(again)) == registrations.MOST
    narrow = Registrations(State(tmp_path), Allowed(["10.0.7.0/24"]))
    assert len(known(narrow)) == 250
    assert all(words.startswith("A registered server is left out: 10.0.") for words in logged)


def test_a_registration_is_saved_at_once_or_as_soon_as_its_folder_can_be_written(
    tmp_path: Path, logged: list[str]
) -> None:
    folder = tmp_path / "state"
    folder.write_text("in the way")
    states = State(folder)
    table = Registrations(states, Allowed())
    table.add(some(1))
    table.maintain()
    assert (states.errors, len(logged)) == (1, 1)
    assert "a restart would lose them" in logged[0]
    folder.unlink()
    states.flush()
    assert known(Registrations(State(folder), Allowed())) == {"10.0.0.7:1"}
    table.add(some(2))
    table.maintain()
    assert known(Registrations(State(folder), Allowed())) == {"10.0.0.7:1", "10.0.0.7:2"}

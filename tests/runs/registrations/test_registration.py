"""What a client may ask to have registered, and what is wrong with anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.discovery import registrations
from exporter.runs.discovery.address import Allowed
from exporter.runs.discovery.registrations import RefusedError

ALLOWED = Allowed()


def read(**asked: Any) -> registrations.RegistrationRequest:
    return registrations.read_request(json.dumps(asked).encode(), ALLOWED)


def test_servers_are_taken_as_the_client_writes_them() -> None:
    found = read(job_name="vllm", targets=[{"target": "10.0.0.7:8000", "labels": {"replica": "0"}}])

    assert found == ("vllm", (("10.0.0.7:8000", {"replica": "0"}),))


def test_servers_are_taken_in_every_way_that_the_server_of_rl_insight_takes_them() -> None:
    found = read(
        targets=["127.0.0.1:9092", {"target": "[fd00::7]:8000", "labels": {"rack": 2}}],
        labels={"rack": "1", "site": "a"},
        more="what a later version may say",
    )

    assert found.job == registrations.TRAINERS
    assert found.servers == (
        ("127.0.0.1:9092", {"rack": "1", "site": "a"}),
        ("[fd00::7]:8000", {"rack": "2", "site": "a"}),
    )


def test_a_server_that_is_listed_twice_is_one() -> None:
    assert len(read(targets=["127.0.0.1:1", "localhost:1", "127.0.0.1:1"]).servers) == 1


def test_the_run_may_be_reported() -> None:
    assert read(targets=["10.0.0.7:1"], labels={"run": "ppo/gsm8k"}).servers[0].labels == {"run": "ppo/gsm8k"}


@pytest.mark.parametrize(
    ("asked", "result", "words"),
    [
        ({}, "malformed", "targets is not a list"),
        ({"targets": []}, "malformed", "targets is not a list"),
        ({"targets": "10.0.0.7:8000"}, "malformed", "targets is not a list"),
        ({"targets": [7]}, "malformed", "targets[0] is not a server"),
        ({"targets": [{}]}, "malformed", "targets[0].target is not a server"),
        ({"targets": ["10.0.0.7:1"], "job_name": 7}, "malformed", "job_name"),
        ({"targets": ["10.0.0.7:1"], "job_name": "a\nb"}, "malformed", "job_name"),
        ({"targets": ["10.0.0.7:1"], "job_name": "x" * 101}, "malformed", "at most 100"),
        ({"targets": ["10.0.0.7:1", "http://10.0.0.7:1"]}, "address", "targets[1]: 'http://"),
        ({"targets": [{"target": "10.0.0.7:1/admin"}]}, "address", "targets[0].target: "),
        ({"targets": ["10.0.0.7"]}, "address", "with a port"),
        ({"targets": ["example.org:80"]}, "address", "not an IP address"),
        ({"targets": ["169.254.169.254:80"]}, "address", "discovery.allow"),
        ({"targets": ["8.8.8.8:53"]}, "address", "discovery.allow"),
        ({"targets": ["10.0.0.7:1"], "labels": ["a"]}, "labels", "labels is not an object"),
        ({"targets": ["10.0.0.7:1"], "labels": {"job": "runs"}}, "labels", "'job', which Stepwatch gives"),
        ({"targets": ["10.0.0.7:1"], "labels": {"instance": "x"}}, "labels", "which Stepwatch gives"),
        ({"targets": ["10.0.0.7:1"], "labels": {"role": "gpu"}}, "labels", "which Stepwatch gives"),
        (
            {"targets": ["10.0.0.7:1"], "labels": {"__address__": "8.8.8.8:1"}},
            "labels",
            "begin with no digit",
        ),
        ({"targets": ["10.0.0.7:1"], "labels": {"__metrics_path__": "/x"}}, "labels", "and no __"),
        ({"targets": ["10.0.0.7:1"], "labels": {"a-b": "x"}}, "labels", "'a-b'"),
        ({"targets": ["10.0.0.7:1"], "labels": {"a" * 65: "x"}}, "labels", "at most 64"),
        (
            {"targets": ["10.0.0.7:1"], "labels": {"a": "x" * 101}},
            "labels",
            "labels.a is not a valid label value",
        ),
        ({"targets": ["10.0.0.7:1"], "labels": {"a": "x\ny"}}, "labels", "labels.a"),
        ({"targets": ["10.0.0.7:1"], "labels": {"a": None}}, "labels", "labels.a"),
        (
            {"targets": [{"target": "10.0.0.7:1", "labels": {f"l{n}": "x" for n in range(9)}}]},
            "labels",
            "targets[0].labels has 9 labels. Expected: at most 8",
        ),
        (
            {
                "targets": [{"target": "10.0.0.7:1", "labels": {f"l{n}": "x" for n in range(3, 9)}}],
                "labels": {f"l{n}": "x" for n in range(4)},
            },
            "labels",
            "targets[0].labels has 9 labels. Expected: at most 8",
        ),
    ],
)
def test_what_is_not_to_be_read_is_refused_with_its_place(
    asked: dict[str, Any], result: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        read(**asked)

    assert refused.value.result == result
    assert words in str(refused.value)
    assert refused.value.status.startswith("400 ")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "line 1, column 1"),
        (b'{"targets": [,]}', "line 1, column 14"),
        (b"[]", "The body is not an object"),
        (b"\xff\xfe", "The body is not valid JSON"),
        (b"[" * 60_000, "The body is not valid JSON"),
        (b'{"targets": ' + b"9" * 60_000 + b"}", "The body is not valid JSON"),
    ],
    ids=["empty", "fault", "list", "no text", "deep", "long number"],
)
def test_a_body_that_is_not_the_json_expected_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(RefusedError, match="Expected: ") as refused:
        registrations.read_request(body, ALLOWED)

    assert words in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
TARGETS = st.lists(JSON | st.fixed_dictionaries({"target": st.just("10.0.0.7:1") | JSON, "labels": JSON}))


@given(st.fixed_dictionaries({"targets": TARGETS | JSON, "labels": JSON, "job_name": JSON}))
def test_whatever_json_comes_is_taken_whole_or_refused_in_words(asked: dict[str, Any]) -> None:
    try:
        servers = registrations.read_request(json.dumps(asked).encode(), ALLOWED).servers
    except RefusedError:
        return
    for server in servers:
        assert not server.labels.keys() & registrations.OURS
        assert all(len(value) <= registrations.LONGEST_VALUE for value in server.labels.values())


@given(st.binary())
def test_whatever_bytes_come_are_refused_in_words(body: bytes) -> None:
    with pytest.raises(RefusedError):
        registrations.read_request(body, ALLOWED)

"""A request to register servers, as rl-insight's client sends it: body, labels, and why it is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter import secret_shapes
from exporter.runs.discovery.address import AddressError, Allowed

OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""

TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""

MOST_LABELS = 8
LONGEST_JOB = 100
LONGEST_NAME = 64
LONGEST_VALUE = 100
"""Characters; Prometheus keeps each label's text for as long as the series."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OPEN = "labels without secrets, since everyone who sees an alert reads them"
_BODY = '{"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000"}]}'


class RefusedError(Exception):
    """Raised when a request cannot be granted: the word it is counted by, its HTTP status, and the reason.

    ``headers`` go with the answer.
    """

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


class Server(NamedTuple):
    """A server in a request: its checked address, and the labels that its client gives it."""

    address: str
    labels: dict[str, str]


class RegistrationRequest(NamedTuple):
    """Servers of one job; no two have one address."""

    job: str
    servers: tuple[Server, ...]


def read(body: bytes, allowed: Allowed) -> RegistrationRequest:
    """Return what a request asks for.

    Raises:
        RefusedError: Its body is invalid, or one of its servers must not be read.
    """
    asked = _document(body)
    usual = checked_labels(asked.get("labels"), "labels", {})
    items = asked.get("targets")
    if not isinstance(items, list) or not items:
        raise _invalid("malformed", "targets is not a list of servers", 'one such as ["10.0.0.7:8000"]')
    servers: dict[str, Server] = {}
    for place, item in enumerate(items):
        server = _server(item, f"targets[{place}]", usual, allowed)
        servers[server.address] = server
    job = asked.get("job_name") or TRAINERS
    if not isinstance(job, str) or not job.isprintable() or len(job) > LONGEST_JOB:
        expected = f"at most {LONGEST_JOB} printable characters"
        raise _invalid("malformed", "job_name is not a valid name", expected)
    return RegistrationRequest(job, tuple(servers.values()))


def checked_labels(found: Any, where: str, usual: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an object in the body, beside the usual ones; numbers become text.

    Args:
        found: What stands in the body; ``None`` has no labels.
        where: Its place there.
        usual: Labels that hold where it says nothing else; they count as well.

    Raises:
        RefusedError: It is not an object, or holds what a label may not.
    """
    if found is None:
        return dict(usual)
    if not isinstance(found, Mapping):
        raise _invalid("labels", f"{where} is not an object", 'an object such as {"replica": "0"}')
    count = len(usual.keys() | found.keys())
    if count > MOST_LABELS:
        expected = f"at most {MOST_LABELS}, those of all targets included"
        raise _invalid("labels", f"{where} has {count} labels", expected)
    labels = dict(usual)
    for name, value in found.items():
        _check_name(name, where)
        labels[name] = _label_value(value, f"{where}.{name}")
    return labels


def _check_name(name: str, where: str) -> None:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.startswith("__"):
        raise _invalid(
            "labels",
            f"{where} has a label {name[:LONGEST_NAME]!r}",
            f"names of letters, digits and _, at most {LONGEST_NAME}, that begin with no digit and no __",
        )
    if name in OURS:
        raise _invalid("labels", f"{where} has a label {name!r}, which Stepwatch gives", "another name")
    if secret_shapes.names_one(name):
        raise _invalid("labels", f"{where} has a label {name!r}, named like a secret", _OPEN)


def _label_value(value: Any, where: str) -> str:
    text = str(value) if isinstance(value, (int, float)) else value
    if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST_VALUE:
        expected = f"at most {LONGEST_VALUE} printable characters, or a number"
        raise _invalid("labels", f"{where} is not a valid label value", expected)
    if kind := secret_shapes.found(text):
        raise _invalid("labels", f"{where} holds what looks like {kind}", _OPEN)
    return text


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except json.JSONDecodeError as problem:
        fault = f"not valid JSON: {problem.msg} in line {problem.lineno}, column {problem.colno}"
    except (ValueError, RecursionError):
        fault = "not valid JSON"
    else:
        if isinstance(found, dict):
            return found
        fault = "not an object"
    raise _invalid("malformed", f"The body is {fault}", _BODY)


def _server(item: Any, where: str, usual: dict[str, str], allowed: Allowed) -> Server:
    labels = usual
    if isinstance(item, dict):
        labels = checked_labels(item.get("labels"), f"{where}.labels", usual)
        item, where = item.get("target"), f"{where}.target"
    if not isinstance(item, str):
        raise _invalid("malformed", f"{where} is not a server", 'one such as "10.0.0.7:8000"')
    try:
        return Server(allowed.checked(item), labels)
    except AddressError as problem:
        raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None


def _invalid(result: str, fault: str, expected: str) -> RefusedError:
    return RefusedError(result, "400 Bad Request", f"{fault}. Expected: {expected}.")

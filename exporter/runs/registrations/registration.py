"""A request to register servers, as rl-insight's client sends it: body, labels, and why it is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from exporter import secret_shapes
from exporter.runs.discovery.address import AddressError, Allowed


class RefusedError(Exception):
    """Raised when a request cannot be granted: the word it is counted by, its HTTP status, and the reason.

    ``headers`` go with the answer.
    """

    def __init__(self, result: str, status: str, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.result, self.status, self.headers = result, status, headers


def malformed(words: str) -> RefusedError:
    """The body is no registration."""
    return RefusedError("malformed", "400 Bad Request", words)


OURS = frozenset({"job", "instance", "role", "severity", "topic"})
"""Rules and messages tell servers apart by these."""

MOST_LABELS = 8
LONGEST_NAME = 64
LONGEST_VALUE = 100
"""Characters; Prometheus keeps each label's text for as long as the series."""

_OPEN = "labels without secrets, since everyone who sees an alert reads them"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def checked_labels(found: Any, where: str, usual: Mapping[str, str] | None = None) -> dict[str, str]:
    """The labels of an object in the body, beside the usual ones; numbers become text.

    Args:
        found: What stands in the body; ``None`` is no labels.
        where: Its place there.
        usual: Labels that hold where it says nothing else; they count as well.

    Raises:
        RefusedError: it is not an object, or holds what a label may not.
    """
    usual = usual or {}
    if found is None:
        return dict(usual)
    if not isinstance(found, Mapping):
        raise _refused(f"{where} is not an object", 'an object such as {"replica": "0"}')
    count = len(usual.keys() | found.keys())
    if count > MOST_LABELS:
        raise _refused(f"{where} has {count} labels", f"at most {MOST_LABELS}, those of all targets included")
    own = {_name(name, where): _value(value, f"{where}.{name}") for name, value in found.items()}
    return {**usual, **own}


def _name(name: str, where: str) -> str:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name.startswith("__"):
        raise _refused(
            f"{where} has a label {name[:LONGEST_NAME]!r}",
            f"names of letters, digits and _, at most {LONGEST_NAME}, that begin with no digit and no __",
        )
    if name in OURS:
        raise _refused(f"{where} has a label {name!r}, which Stepwatch gives", "another name")
    if secret_shapes.names_one(name):
        raise _refused(f"{where} has a label {name!r}, named like a secret", _OPEN)
    return name


def _value(value: Any, where: str) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else None
    if text is None or not text.isprintable() or len(text) > LONGEST_VALUE:
        raise _refused(
            f"{where} is not a valid label value",
            f"at most {LONGEST_VALUE} printable characters, or a number",
        )
    if kind := secret_shapes.found(text):
        raise _refused(f"{where} holds what looks like {kind}", _OPEN)
    return text


def _refused(fault: str, expected: str) -> RefusedError:
    return RefusedError("labels", "400 Bad Request", f"{fault}. Expected: {expected}.")


TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""

LONGEST_JOB = 100


class Server(NamedTuple):
    """A server of an order: its checked address, and the labels that its client gives it."""

    address: str
    labels: dict[str, str]


class RegistrationRequest(NamedTuple):
    """Servers of one job; no two have one address."""

    job: str
    servers: tuple[Server, ...]


def read(body: bytes, allowed: Allowed) -> RegistrationRequest:
    """The order in the body of a request.

    Raises:
        RefusedError: it is none, or one of its servers is not to be read.
    """
    asked = _document(body)
    usual = checked_labels(asked.get("labels"), "labels")
    items = asked.get("targets")
    if not isinstance(items, list) or not items:
        raise malformed('targets is not a list of servers. Expected: one such as ["10.0.0.7:8000"].')
    servers = [_server(item, f"targets[{place}]", usual, allowed) for place, item in enumerate(items)]
    return RegistrationRequest(
        _job(asked.get("job_name")), tuple({server.address: server for server in servers}.values())
    )


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except json.JSONDecodeError as problem:
        _no_document(f"not valid JSON: {problem.msg} in line {problem.lineno}, column {problem.colno}")
    except (ValueError, RecursionError):
        _no_document("not valid JSON")
    if not isinstance(found, dict):
        _no_document("not an object")
    return found


def _no_document(why: str) -> NoReturn:
    expected = '{"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000"}]}'
    raise malformed(f"The body is {why}. Expected: {expected}.")


def _job(found: Any) -> str:
    name = found or TRAINERS
    if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_JOB:
        raise malformed(
            f"job_name is not a valid name. Expected: at most {LONGEST_JOB} printable characters."
        )
    return name


def _server(item: Any, where: str, usual: dict[str, str], allowed: Allowed) -> Server:
    checked = usual
    if isinstance(item, dict):
        checked = checked_labels(item.get("labels"), f"{where}.labels", usual)
        item, where = item.get("target"), f"{where}.target"
    if not isinstance(item, str):
        raise malformed(f'{where} is not a server. Expected: one such as "10.0.0.7:8000".')
    try:
        return Server(allowed.checked(item), checked)
    except AddressError as problem:
        raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None

"""What a client asks to have registered, as rl-insight's client writes it and its server takes it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn

from exporter.runs.registrations import labels
from exporter.runs.registrations.refusal import RefusedError, malformed
from exporter.runs.rollouts.address import AddressError, Allowed

TRAINERS = "trainer_metrics"
"""The job of pages with a trainer's numbers; the one that is meant where none is named."""

LONGEST_JOB = 100


class Server(NamedTuple):
    """A server of an order: its checked address, and the labels that its client gives it."""

    address: str
    labels: dict[str, str]


class Order(NamedTuple):
    """Servers of one job; no two have one address."""

    job: str
    servers: tuple[Server, ...]


def read(body: bytes, allowed: Allowed) -> Order:
    """The order in the body of a request.

    Raises:
        RefusedError: it is none, or one of its servers is not to be read.
    """
    asked = _document(body)
    usual = labels.checked(asked.get("labels"), "labels")
    items = asked.get("targets")
    if not isinstance(items, list) or not items:
        raise malformed('targets is no list of servers. Expected: one such as ["10.0.0.7:8000"].')
    servers = [_server(item, f"targets[{place}]", usual, allowed) for place, item in enumerate(items)]
    return Order(_job(asked.get("job_name")), tuple({server.address: server for server in servers}.values()))


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except json.JSONDecodeError as problem:
        _no_document(f": {problem.msg} in line {problem.lineno}, column {problem.colno}")
    except (ValueError, RecursionError):
        _no_document("")
    if not isinstance(found, dict):
        _no_document(" of that kind")
    return found


def _no_document(why: str) -> NoReturn:
    expected = '{"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000"}]}'
    raise malformed(f"The body is no JSON{why}. Expected: {expected}.")


def _job(found: Any) -> str:
    name = found or TRAINERS
    if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_JOB:
        raise malformed(f"job_name is no name. Expected: at most {LONGEST_JOB} printable characters.")
    return name


def _server(item: Any, where: str, usual: dict[str, str], allowed: Allowed) -> Server:
    checked = usual
    if isinstance(item, dict):
        checked = labels.checked(item.get("labels"), f"{where}.labels", usual)
        item, where = item.get("target"), f"{where}.target"
    if not isinstance(item, str):
        raise malformed(f'{where} is no server. Expected: one such as "10.0.0.7:8000".')
    try:
        return Server(allowed.checked(item), checked)
    except AddressError as problem:
        raise RefusedError("address", "400 Bad Request", f"{where}: {problem}.") from None

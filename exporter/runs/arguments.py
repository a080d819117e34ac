"""Arguments of the run exporter that are lists and tables, as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from exporter.runs.overrides import Override, Overrides
from exporter.runs.polled.mlflow import Mlflow
from exporter.runs.polled.page import Page
from exporter.runs.polled.web import is_usable
from exporter.runs.rollouts.address import Allowed
from exporter.runs.signals import NAMES
from exporter.secret_shapes import masked, masked_url

T = TypeVar("T")


def signals(text: str) -> Mapping[str, tuple[str, ...]]:
    """More keys by signal.

    Raises:
        ArgumentTypeError: it is no such table.
    """
    table = _json(text, dict, "a table of signals and keys")
    unknown = [name for name in table if name not in NAMES]
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is no signal. Expected one that docs/metrics.md lists.")
    return {name: _texts(keys) for name, keys in table.items()}


def patterns(text: str) -> tuple[str, ...]:
    """Patterns of keys.

    Raises:
        ArgumentTypeError: it is no list of texts.
    """
    return _texts(_json(text, list, "a list of patterns"))


def overrides(text: str) -> Overrides:
    """Limits that some runs have.

    Raises:
        ArgumentTypeError: it is no list of overrides.
    """
    try:
        return Overrides([Override.read(each) for each in _json(text, list, "a list of overrides")])
    except ValueError as problem:
        raise ArgumentTypeError(str(problem)) from problem


def networks(text: str) -> Allowed:
    """The networks that targets may lie in.

    Raises:
        ArgumentTypeError: it is no list of networks.
    """
    try:
        return Allowed(_texts(_json(text, list, "a list of networks")))
    except ValueError as problem:
        raise ArgumentTypeError(f"{text!r}: {problem}") from problem


def count(text: str) -> int:
    """A whole number of 0 or more.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and len(text) < 7):
        raise ArgumentTypeError(f"{text!r} is no number of series. Expected one such as 40.")
    return int(text)


def pages(text: str) -> tuple[Page, ...]:
    """Pages to poll.

    Raises:
        ArgumentTypeError: it is no list of pages.
    """
    return _targets(text, Page)


def servers(text: str) -> tuple[Mlflow, ...]:
    """Tracking servers to poll.

    Raises:
        ArgumentTypeError: it is no list of servers.
    """
    return _targets(text, Mlflow)


def address(text: str) -> str:
    """The address of a server.

    Raises:
        ArgumentTypeError: it is none, or holds a user name.
    """
    if not is_usable(text):
        raise ArgumentTypeError(
            f"{masked_url(text)} is no address. "
            "Expected one such as http://127.0.0.1:9090, without a user name."
        )
    return text


def _targets(text: str, make: Callable[..., T]) -> tuple[T, ...]:
    try:
        return tuple(make(**fields) for fields in _json(text, list, "a list of tables"))
    except (TypeError, ValueError) as problem:
        raise ArgumentTypeError(f"{masked(text)!r}: {masked(str(problem))}") from problem


def _texts(found: Any) -> tuple[str, ...]:
    if isinstance(found, list) and all(isinstance(text, str) for text in found):
        return tuple(found)
    raise ArgumentTypeError(f'{found!r} is no list of texts. Expected one such as ["my/score"].')


def _json(text: str, kind: type[T], expected: str) -> T:
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise ArgumentTypeError(f"{masked(text)!r} is no JSON: {problem}. Expected {expected}.") from problem
    if not isinstance(found, kind):
        raise ArgumentTypeError(f"{masked(text)!r} is not {expected}.")
    return found

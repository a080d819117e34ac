"""Checks of options of the run exporter that are lists and tables: JSON as text, or from a file."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from exporter.runs.model.overrides import Override, Overrides
from exporter.runs.remote.mlflow import Mlflow
from exporter.runs.remote.page import Page
from exporter.runs.remote.web import is_usable
from exporter.runs.rollouts.address import Allowed
from exporter.runs.signals import NAMES
from exporter.secret_shapes import masked, masked_url

T = TypeVar("T")


def signals(value: object) -> Mapping[str, tuple[str, ...]]:
    """More keys by signal.

    Raises:
        ArgumentTypeError: it is no such table.
    """
    table = _json(value, dict, "a table of signals and keys")
    unknown = [name for name in table if name not in NAMES]
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is not a signal. Expected one that docs/metrics.md lists.")
    return {name: _texts(keys) for name, keys in table.items()}


def patterns(value: object) -> tuple[str, ...]:
    """Patterns of keys.

    Raises:
        ArgumentTypeError: it is not a list of texts.
    """
    return _texts(_json(value, list, "a list of patterns"))


def overrides(value: object) -> Overrides:
    """Limits that some runs have.

    Raises:
        ArgumentTypeError: it is no list of overrides.
    """
    try:
        return Overrides([Override.read(each) for each in _json(value, list, "a list of overrides")])
    except ValueError as problem:
        raise ArgumentTypeError(str(problem)) from problem


def networks(value: object) -> Allowed:
    """The networks that targets may lie in.

    Raises:
        ArgumentTypeError: it is no list of networks.
    """
    try:
        return Allowed(_texts(_json(value, list, "a list of networks")))
    except ValueError as problem:
        raise ArgumentTypeError(f"{value!r}: {problem}") from problem


def address(value: object) -> str:
    """The address of a server.

    Raises:
        ArgumentTypeError: it is none, or holds a user name.
    """
    if not (isinstance(value, str) and is_usable(value)):
        raise ArgumentTypeError(
            f"{masked_url(str(value))} is not an address. "
            "Expected one such as http://127.0.0.1:9090, without a user name."
        )
    return value


def _targets(make: Callable[..., T], value: object) -> tuple[T, ...]:
    try:
        return tuple(make(**fields) for fields in _json(value, list, "a list of tables"))
    except (TypeError, ValueError, AttributeError) as problem:  # of another form, or not texts
        raise ArgumentTypeError(f"{masked(str(value))!r}: {masked(str(problem))}") from problem


pages = partial(_targets, Page)
"""Pages to poll."""

servers = partial(_targets, Mlflow)
"""Tracking servers to poll."""


def _texts(found: Any) -> tuple[str, ...]:
    if isinstance(found, list) and all(isinstance(text, str) for text in found):
        return tuple(found)
    raise ArgumentTypeError(f'{found!r} is not a list of texts. Expected one such as ["my/score"].')


def _json(value: object, kind: type[T], expected: str) -> T:
    """Return the value of a flag's text, or of a file; it must be of this kind."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as problem:
        raise ArgumentTypeError(
            f"{masked(str(value))!r} is not JSON: {problem}. Expected {expected}."
        ) from problem
    if not isinstance(found, kind):
        raise ArgumentTypeError(f"{masked(str(value))!r} is not {expected}. Expected {expected}.")
    return found

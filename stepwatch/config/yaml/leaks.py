"""Secrets in a document, where none may stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter import secret_shapes
from stepwatch.schema.errors import KeyPath, named


def within(values: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield where a document holds a secret, in a key or a value, and of what kind."""
    if isinstance(values, dict):
        for key, value in values.items():
            if kind := secret_shapes.found(key):
                yield (*path, key), kind
            yield from within(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from within(value, (*path, index))
    elif isinstance(values, str) and values:
        kind = secret_shapes.found(values)
        if kind or ("labels" in path and named(path)):
            yield path, kind or "the value of a label that is named like a secret"

"""Values to be tried in place of those in the file: ``alerts.KL.warning.above_start=0.3``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepwatch.config import reference
from stepwatch.config.loading import load, validated, written
from stepwatch.config.models import Config
from stepwatch.config.yaml.document import parse
from stepwatch.schema.errors import ConfigError, KeyPath, Problem, refusal

SOURCE = "--set"


def load_changed(path: Path, changes: Iterable[str]) -> Config:
    """The configuration of a file with some of its values changed, each written ``key.key=value``.

    Raises:
        ConfigError: The file alone is wrong, or a change makes it so; all problems are named.
    """
    load(path)
    values = written(path).values
    for text in changes:
        key, value = _change(text)
        values = _with(values, key, value)
    try:
        return validated(values, path)
    except ValidationError as error:
        problems = [Problem(None, fault) for fault in reference.faults(error, Config)]
        raise ConfigError(SOURCE, problems) from error


def _change(text: str) -> tuple[KeyPath, Any]:
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise refusal(
            f"{SOURCE} {text}",
            "names no value",
            expected="keys with dots between them, and a value",
            fix="write, for example, alerts.KL.warning.above_start=0.3",
        )
    document = parse(value, f"{SOURCE} {key}")
    if document.problems:
        raise ConfigError(f"{SOURCE} {key}", document.problems)
    return tuple(key.strip().split(".")), document.values


def _with(values: Any, key: KeyPath, value: Any) -> Any:
    if not key:
        return value
    inside = values if isinstance(values, Mapping) else {}
    return {**inside, key[0]: _with(inside.get(key[0]), key[1:], value)}

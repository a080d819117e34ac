"""From config.yaml to its models, or to every problem it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stepwatch.config import explain
from stepwatch.config.document import UNREADABLE, Document, parse
from stepwatch.config.errors import ConfigError, Fault, Problem, refusal
from stepwatch.config.models import Config
from stepwatch.config.source import read


def load(path: Path) -> Config:
    """Return the configuration of a file; an empty file means all defaults.

    Relative paths in it are meant from its own folder, and come back absolute.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong; all problems are named.
    """
    document = written(path)
    try:
        config = validated(document.values, path)
    except ValidationError as error:
        problems = [*document.problems, *_located(explain.faults(error, Config), document)]
        raise ConfigError(str(path), problems) from error
    if document.problems:
        raise ConfigError(str(path), document.problems)
    return config


def written(path: Path) -> Document:
    """Return what a file says, whether or not it makes sense.

    Raises:
        ConfigError: The file cannot be read, or holds no mapping.
    """
    document = parse(read(path), str(path))
    if not isinstance(document.values, dict):
        raise refusal(
            str(path), "holds no mapping", expected="keys and values", cure='write "key: value"', line=1
        )
    return document


def validated(values: dict[str, Any], path: Path) -> Config:
    """Return the configuration that a file's values are.

    Raises:
        pydantic.ValidationError: They are none.
    """
    # The section is named although it may be missing: its default path is relative, too.
    return Config.model_validate({"runs": {}, **values}, context={"folder": path.absolute().parent})


def _located(faults: Iterator[Fault], document: Document) -> Iterator[Problem]:
    for fault in faults:
        if fault.value is not UNREADABLE:
            yield Problem(document.line(fault.at), fault)

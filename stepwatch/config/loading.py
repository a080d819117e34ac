"""From config.yaml to its models, or to every problem it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from exporter import secret_shapes
from stepwatch.config import reference
from stepwatch.config.models import Config
from stepwatch.config.overrides import DEMO
from stepwatch.config.yaml.document import UNREADABLE, Document, parse
from stepwatch.config.yaml.source import read
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem, SecretFault, named, refusal


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


def load(path: Path) -> Config:
    """Return the configuration of a file; an empty file means all defaults.

    Relative paths in it are meant from its own folder, and come back absolute.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong; all problems are named.
    """
    document = written(path)
    leaked = tuple(_leaks(document))
    try:
        config = validated(document.values, path)
    except ValidationError as error:
        located = tuple(_located(reference.faults(error, Config), document))
        # What a key says of a secret in it beats what is said of any secret, and that beats all else.
        own = {problem.fault.at for problem in located if isinstance(problem.fault, SecretFault)}
        leaked = tuple(problem for problem in leaked if problem.fault.at not in own)
        known = {problem.fault.at for problem in leaked}
        others = (problem for problem in located if problem.fault.at not in known)
        # Not `from error`: that one holds the values.
        raise ConfigError(str(path), [*document.problems, *leaked, *others]) from None
    if problems := (*document.problems, *leaked):
        raise ConfigError(str(path), problems)
    return config


def written(path: Path) -> Document:
    """Return what a file says, whether or not it makes sense.

    Raises:
        ConfigError: The file cannot be read, or holds no mapping.
    """
    document = parse(read(path), str(path))
    if not isinstance(document.values, dict):
        raise refusal(
            str(path), "holds no mapping", expected="keys and values", fix='write "key: value"', line=1
        )
    return document


def validated(values: dict[str, Any], path: Path) -> Config:
    """Return the configuration that a file's values are, with the demo's overrides after its own.

    Raises:
        pydantic.ValidationError: They are none.
    """
    # The section is named although it may be missing: its default path is relative, too.
    config = Config.model_validate({"runs": {}, **values}, context={"folder": path.absolute().parent})
    return config.model_copy(update={"overrides": (*config.overrides, *DEMO)})


def _leaks(document: Document) -> Iterator[Problem]:
    for path, kind in within(document.values):
        fault = Fault(
            f"holds what looks like {kind}; everyone who reads this file or the generated ones would know it",
            value=NOTHING,
            expected="no secret in this file",
            fix="delete it and have it replaced by its issuer; where one is needed, a key such as url_file, "
            "credentials_file or token_file names a file that holds it",
        )
        yield Problem(document.line(path), fault.below(path))


def _located(faults: Iterator[Fault], document: Document) -> Iterator[Problem]:
    for fault in faults:
        if fault.value is not UNREADABLE:
            yield Problem(document.line(fault.at), fault)

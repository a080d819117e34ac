"""From config.yaml to its models, or to every problem it has."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from exporter import secret_shapes
from stepwatch.alerts.table import BUILT_IN
from stepwatch.config import own_alerts, reference
from stepwatch.config.models import DEMO, Config, with_table
from stepwatch.config.yaml_document import UNREADABLE, Document, parse
from stepwatch.schema.errors import NOTHING, ConfigError, Fault, KeyPath, Problem, SecretFault, named, refusal

SET = "--set"

MAX_BYTES = 2 * 1024 * 1024

# What YAML 1.2 calls printable; anything else ends a parser in words that help no one.
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def load(path: Path) -> Config:
    """Return the configuration of a file, its paths absolute. Raises ConfigError with all problems."""
    document, model = written(path), model_of(path)
    leaked = tuple(_leaks(document))
    try:
        config = validated(document.values, path, model)
    except ValidationError as error:
        located = [
            Problem(document.line(fault.at), fault)
            for fault in reference.faults(error, model)
            if fault.value is not UNREADABLE
        ]
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


def load_changed(path: Path, changes: Iterable[str]) -> Config:
    """Return the configuration of a file with some values changed, each written ``key.key=value``."""
    load(path)
    values, model = written(path).values, model_of(path)
    for text in changes:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            raise refusal(
                f"{SET} {text}",
                "has no value",
                expected="a dotted key and a value",
                fix="write, for example, alerts.KL.warning.above_start=0.3",
            )
        document = parse(value, f"{SET} {key}")
        if document.problems:
            raise ConfigError(f"{SET} {key}", document.problems)
        values = with_value(values, tuple(key.strip().split(".")), document.values)
    try:
        return validated(values, path, model)
    except ValidationError as error:
        problems = [Problem(None, fault) for fault in reference.faults(error, model)]
        raise ConfigError(SET, problems) from error


def written(path: Path) -> Document:
    """Return what a file says, whether or not it makes sense. Raises ConfigError."""
    document = parse(_text(path), str(path))
    if not isinstance(document.values, dict):
        raise refusal(
            str(path), "is not a mapping", expected="keys and values", fix='write "key: value"', line=1
        )
    return document


def model_of(path: Path) -> type[Config]:
    """Return the model of a configuration, with the alerts of users' own beside it. Raises ConfigError."""
    table = own_alerts.table((file, written(file)) for file in own_alerts.files(path))
    return Config if table is BUILT_IN else with_table(table)


def validated(values: dict[str, Any], path: Path, model: type[Config] = Config) -> Config:
    """Return the configuration that a file's values are, with the demo's overrides after its own."""
    # The section is named although it may be missing: its default path is relative, too.
    config = model.model_validate({"runs": {}, **values}, context={"folder": path.absolute().parent})
    return config.model_copy(update={"overrides": (*config.overrides, *DEMO)})


def _text(path: Path) -> str:
    """Return the text of a file. Raises ConfigError."""
    file = str(path)
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise refusal(file, "is a folder", expected="a YAML file", fix="name the file in it")
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refusal(
            file,
            f"cannot be read ({reason[:1].lower()}{reason[1:]})",
            expected="a YAML file this user may read",
            fix=f"check the path and its permissions (working folder: {os.getcwd()})",  # noqa: PTH109  text
        ) from error
    if len(data) > MAX_BYTES:
        raise refusal(
            file,
            "is larger than 2 MiB",
            expected="a configuration file",
            fix="name the right file, and long target lists under scrape[].files",
        )
    if b"\0" in data:
        raise refusal(
            file, "holds NUL bytes", expected="UTF-8 text", fix="name a YAML file, not a binary one"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_text(file, data[: error.start].count(b"\n"), f"byte 0x{data[error.start]:02x}") from error
    if bad := _UNPRINTABLE.search(text):
        raise _not_text(file, text[: bad.start()].count("\n"), f"character U+{ord(bad[0]):04X}")
    return text


def _not_text(file: str, lines_before: int, what: str) -> ConfigError:
    return refusal(
        file,
        f"{what} is not printable UTF-8 text",
        expected="UTF-8 text",
        fix="save the file as UTF-8 and delete invisible characters",
        line=lines_before + 1,
    )


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


def _leaks(document: Document) -> Iterator[Problem]:
    for path, kind in within(document.values):
        fault = Fault(
            f"holds what looks like {kind}; everyone who can read this file or the generated ones could read "
            "it",
            value=NOTHING,
            expected="no secret in this file",
            fix="delete it and rotate it; where a secret is needed, name a file with it by a key such as "
            "url_file, credentials_file or token_file",
        )
        yield Problem(document.line(path), fault.below(path))


def with_value(values: Any, key: KeyPath, value: Any) -> Any:
    """Return a mapping of mappings with another value at a path."""
    if not key:
        return value
    inside = values if isinstance(values, Mapping) else {}
    return {**inside, key[0]: with_value(inside.get(key[0]), key[1:], value)}

"""Every key of config.yaml with its default and the reason for it: as YAML, and one by one."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from stepwatch.schema.errors import NOTHING, Fault, Faults, KeyPath, Refused
from stepwatch.schema.scalars import instead, one_of
from stepwatch.schema.section import Section


def children(model: type[Section]) -> dict[str, type[Section] | None]:
    """Return the keys of a model with the model below each, None where a value stands."""
    return {field.alias or name: _section_in(field.annotation) for name, field in model.model_fields.items()}


def _section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def below(model: type[Section] | None, path: KeyPath) -> type[Section] | None:
    """Return the model at a path below a model, None where a value or nothing stands."""
    for part in path:
        if isinstance(part, str) and model is not None:
            model = children(model).get(part)
    return model


def known(model: type[Section] | None, path: KeyPath) -> tuple[str, ...]:
    """Return the keys that are known at a path below a model."""
    found = below(model, path)
    return tuple(children(found)) if found is not None else ()


_A_MAPPING = "write its keys below it, indented by two spaces"
_A_LIST = 'write each item on a line of its own that starts with "- ", or [] for none'


def faults(error: ValidationError, model: type[Section]) -> Iterator[Fault]:
    """Yield each fault of a validation, its path as seen from the model."""
    for details in error.errors(include_url=False):
        # "[key]" is how pydantic marks the key of a mapping as opposed to its value.
        path = tuple(part for part in details["loc"] if part != "[key]")
        raised, value = details.get("ctx", {}).get("error"), details["input"]
        if isinstance(raised, Faults):
            yield from (fault.below(path) for fault in raised.faults)
        elif isinstance(raised, Fault):
            yield raised.of(value).below(path)
        elif details["type"] == "extra_forbidden":
            above = below(model, path[:-1])
            names = known(above, ())
            fix = instead(path[-1], names, aliases=above.also_known_as() if above else {})
            yield Fault("unknown key", expected=one_of(names), fix=fix, at=path, value=NOTHING)
        elif details["type"] == "missing":
            yield Fault("is missing", expected=f"the key {path[-1]}", fix="add it", at=path, value=NOTHING)
        elif details["type"] == "tuple_type":
            yield Fault("is not a list", expected="a list", fix=_A_LIST, at=path, value=value)
        else:
            names = known(model, path)
            expected = f"a mapping with the keys {', '.join(names)}" if names else "a mapping"
            yield Fault("is not a mapping", expected=expected, fix=_A_MAPPING, at=path, value=value)


REQUIRED = "required"

_WIDTH = 100


class Key(NamedTuple):
    """A key: its path, ``alerts.KL.warning``; its default as YAML, empty for a section; its reason."""

    path: str
    default: str
    why: str


def keys(model: type[Section], above: str = "") -> Iterator[Key]:
    """Yield every key below a model, those of list items as ``scrape[].job``."""
    for name, field, below in _fields(model):
        many = str(field.annotation).startswith("tuple")
        section = below is not None and not many and not field.is_required() and _default(field) is not None
        yield Key(above + name, "" if section else _written(field), _why(field, below))
        if below:
            yield from keys(below, f"{above}{name}{'[]' if many else ''}.")


def defaults(model: type[Section], indent: int = 0) -> str:
    """Return the keys of a model as YAML, each with its default under the reason for it."""
    return "".join(_entry(name, field, below, indent) for name, field, below in _fields(model))


def explain(model: type[Section], path: str) -> str:
    """Return one key, and what is below it, as YAML that config.yaml may hold. Raises Refused."""
    parts, above, at = re.sub(r"\[\d*\]", "", path).split("."), "", model
    for depth, part in enumerate(parts):
        found = {name: (field, below) for name, field, below in _fields(at)}
        if part not in found:
            fix = instead(part, found, aliases=at.also_known_as())
            raise Refused(f"{path}: {part}: unknown key. Expected: {one_of(found)}. Fix: {fix}")
        field, below = found[part]
        if below is None or depth == len(parts) - 1:
            if part != parts[-1]:
                raise Refused(
                    f"{path}: {part} has no keys below it. Expected: a section. Fix: remove the rest"
                )
            return above + _entry(part, field, below, 2 * depth)
        above, at = f"{above}{'  ' * depth}{part}:\n", below
    raise AssertionError(path)  # split() returns one part at least


def scalar(value: Any) -> str:
    """Return a value as YAML spells it on one line."""
    match value:
        case bool() | None | int() | float():
            return json.dumps(value)
        case tuple() | list():
            return f"[{', '.join(map(scalar, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {scalar(each)}' for key, each in value.items())}}}"
        case Path():
            return str(value) if value.is_absolute() else f"./{value}"
    text = str(value)
    return text if text.replace("_", "").replace(".", "").isalnum() else json.dumps(text)


def _fields(model: type[Section]) -> Iterator[tuple[str, FieldInfo, type[Section] | None]]:
    for (name, below), field in zip(children(model).items(), model.model_fields.values(), strict=True):
        yield name, field, below


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _written(field: FieldInfo) -> str:
    return REQUIRED if field.is_required() else scalar(_default(field))


def _why(field: FieldInfo, below: type[Section] | None) -> str:
    return field.description or (" ".join((below.__doc__ or "").split()) if below else "")


def _entry(name: str, field: FieldInfo, below: type[Section] | None, indent: int) -> str:
    margin = " " * indent
    text = "".join(f"{margin}# {line}\n" for line in textwrap.wrap(_why(field, below), _WIDTH - indent - 2))
    if below is None:
        return f"{text}{margin}{name}: {_written(field)}\n"
    if not field.is_required() and isinstance(_default(field), Section):
        return f"{text}{margin}{name}:\n{defaults(below, indent + 2)}"
    # None by default; in comments the keys of one.
    inside = (
        line.replace("#  ", "  ", 1) if line.lstrip().startswith("#  ") else line
        for line in defaults(below).splitlines()
    )
    return f"{text}{margin}{name}: {_written(field)}\n" + "".join(f"{margin}#  {line}\n" for line in inside)

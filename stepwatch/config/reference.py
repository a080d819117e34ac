"""Every key of config.yaml with its default and the reason for it: as YAML, and as rows of a table."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import PydanticUndefined

from stepwatch.config.keys import children
from stepwatch.config.section import Section

_WIDTH = 100


class Key(NamedTuple):
    """A key: its path, ``alerts.KL.warning``; its default as YAML, empty if it needs a value; its reason."""

    path: str
    default: str
    why: str


def keys(model: type[Section], above: str = "") -> Iterator[Key]:
    """Yield every key below a model, those of list items as ``scrape[].job``."""
    for name, field in zip(children(model), model.model_fields.values(), strict=True):
        value = field.get_default(call_default_factory=True)
        below = children(model)[name]
        if below is None or isinstance(value, tuple):
            yield Key(
                above + name, "" if value is PydanticUndefined else scalar(value), field.description or ""
            )
        else:
            yield Key(above + name, "", field.description or below.__doc__ or "")
        if below:
            many = "[]" if isinstance(value, tuple) else ""
            yield from keys(below, f"{above}{name}{many}.")


def defaults(section: Section, indent: int = 0) -> str:
    """Return a section as YAML, each key under the reason for its default."""
    return "".join(_entry(section, name, indent) for name in children(type(section)))


def _entry(section: Section, name: str, indent: int) -> str:
    fields = {field.alias or key: (key, field) for key, field in type(section).model_fields.items()}
    attribute, field = fields[name]
    value, margin = getattr(section, attribute), " " * indent
    why = field.description or (type(value).__doc__ if isinstance(value, Section) else "") or ""
    comment = "".join(f"{margin}# {line}\n" for line in textwrap.wrap(why, _WIDTH - indent - 2))
    if isinstance(value, Section):
        return f"{comment}{margin}{name}:\n{defaults(value, indent + 2)}"
    return f"{comment}{margin}{name}: {scalar(value)}\n"


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

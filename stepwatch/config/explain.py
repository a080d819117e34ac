"""What pydantic found, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError

from stepwatch.config.keys import below, known
from stepwatch.schema.errors import NOTHING, Fault, Faults, KeyPath
from stepwatch.schema.scalars import instead, one_of
from stepwatch.schema.section import Section

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_A_MAPPING = "write its keys below it, indented by two spaces"
_A_LIST = 'write each item on a line of its own that starts with "- ", or [] for none'


def faults(error: ValidationError, model: type[Section]) -> Iterator[Fault]:
    """Yield each fault of a validation, its path as seen from the model."""
    for details in error.errors(include_url=False):
        # "[key]" is how pydantic marks the key of a mapping as opposed to its value.
        path = tuple(part for part in details["loc"] if part != "[key]")
        yield from _faults(details, path, model)


def _faults(details: ErrorDetails, path: KeyPath, model: type[Section]) -> Iterator[Fault]:
    raised = details.get("ctx", {}).get("error")
    if isinstance(raised, Faults):
        yield from (fault.below(path) for fault in raised.faults)
    elif isinstance(raised, Fault):
        yield raised.of(details["input"]).below(path)
    else:
        yield _structural(details, path, model)


def _structural(details: ErrorDetails, path: KeyPath, model: type[Section]) -> Fault:
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        return _unknown(path, below(model, path[:-1]))
    if kind == "missing":
        return Fault("is missing", expected=f"the key {path[-1]}", fix="add it", at=path, value=NOTHING)
    if kind == "tuple_type":
        return Fault("is no list", expected="a list", fix=_A_LIST, at=path, value=value)
    keys = known(model, path)
    expected = f"a mapping with the keys {', '.join(keys)}" if keys else "a mapping"
    return Fault("is no mapping", expected=expected, fix=_A_MAPPING, at=path, value=value)


def _unknown(path: KeyPath, model: type[Section] | None) -> Fault:
    keys = known(model, ())
    fix = instead(path[-1], keys, aliases=model.also_known_as() if model else {})
    return Fault("is no known key", expected=one_of(keys), fix=fix, at=path, value=NOTHING)

"""The keys that models know."""

from __future__ import annotations

from typing import Any, get_args

from stepwatch.schema.errors import KeyPath
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

"""What every part of the configuration is: frozen, closed to unknown keys, spelled as in the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function, with_info_plain_validator_function


class Checked:
    """The whole validation of a type, in ``Annotated``: what ``check`` returns.

    pydantic's ``PlainValidator`` does the same, but inspects the function for each field and works out how
    the type would be written as JSON, which nothing needs.

    Args:
        check: Takes the value, and with ``located`` a ``ValidationInfo``, too.
        located: Whether it needs the folder of the file, which the context of the validation holds.
    """

    def __init__(self, check: Callable[..., Any], *, located: bool = False) -> None:
        made = with_info_plain_validator_function if located else no_info_plain_validator_function
        self._schema: CoreSchema = made(check)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return self._schema


class Section(BaseModel):
    """A mapping of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def also_known_as(cls) -> dict[str, str]:
        """Return the key that is meant by names which are none."""
        return {}

    def plain(self) -> dict[str, Any]:
        """Return the section as the mapping that would be read back into it."""
        return {
            field.alias or name: _plain(getattr(self, name))
            for name, field in type(self).model_fields.items()
        }


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Section) else value


def default(value: Any, why: str, evidence: str = "", alias: str | None = None) -> Any:
    """Return a key's default with what it does, why it is that, and what that rests on."""
    return Field(value, alias=alias, description=f"{why} {evidence}".strip())


def needed(what: str) -> Any:
    """Return a key without a default, with what it does."""
    return Field(description=what)

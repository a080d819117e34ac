"""What every part of the configuration is: frozen, closed to unknown keys, spelled as in the file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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


def default(value: Any, why: str) -> Any:
    """Return a key's default with what it does and why it is that: the text of the reference."""
    return Field(value, description=why)


def needed(what: str) -> Any:
    """Return a key without a default, with what it does."""
    return Field(description=what)

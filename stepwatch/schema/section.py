"""The models of config.yaml: frozen, closed to unknown keys, spelled as in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function, with_info_plain_validator_function

from stepwatch.schema.errors import NOTHING, Fault, Faults, quoted


class Checked:
    """The whole validation of a type, in ``Annotated``; quicker to build than pydantic's PlainValidator."""

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
        """Return the keys that unknown names are likely to mean."""
        return {}

    def plain(self) -> dict[str, Any]:
        """Return the section as the mapping that would be read back into it."""
        values = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return {key: value.plain() if isinstance(value, Section) else value for key, value in values.items()}


def default(value: Any, why: str, evidence: str = "", alias: str | None = None) -> Any:
    """Return a key's default with what it does, why it is that, and what that rests on."""
    return Field(value, alias=alias, description=f"{why} {evidence}".strip())


def needed(what: str) -> Any:
    """Return a key without a default, with what it does."""
    return Field(description=what)


def boolean(value: Any) -> bool:
    """Return a value that is true or false. Raises Fault if it is neither."""
    if isinstance(value, bool):
        return value
    raise Fault("is not a boolean", expected="true or false", fix="write true or false without quotes")


def not_empty(expected: str, fix: str) -> AfterValidator:
    """Return the check, in ``Annotated``, of a list or mapping that has at least one entry."""

    def check(value: Any) -> Any:
        if not value:
            raise Fault("is empty", expected=expected, fix=fix)
        return value

    return AfterValidator(check)


def require_both(section: Section, keys: tuple[str, str], expected: str = "both, or neither") -> None:
    """Check that a section has two keys that belong together, or neither. Raises Fault if it has only one."""
    lacking = [key for key in keys if getattr(section, key) is None]
    if len(lacking) == 1:
        (lacks,), (has,) = lacking, (key for key in keys if key not in lacking)
        raise Fault(
            f"has {has} without {lacks}",
            value=NOTHING,
            expected=expected,
            fix=f"add {lacks}, or delete {has}",
        )


class Level(Section):
    """The limits of one level of which some are crossed downwards: less is worse."""

    falling: ClassVar[frozenset[str]] = frozenset()


class Block(Section):
    """What `alerts.<Name>` holds: a switch, and limits by level."""

    about_runs: ClassVar[bool] = True
    names: ClassVar[Mapping[str, str]] = {}
    """What the alert of a level is called, where that is not the block's own name."""

    enabled: Annotated[bool, Checked(boolean)] = default(True, "false switches the block off.")

    @model_validator(mode="after")
    def _warn_before_critical(self) -> Block:
        levels = dict(self)
        if faults := list(_beyond(levels.get("warning"), levels.get("critical"), ("warning",))):
            raise Faults(faults)
        return self


def _beyond(
    warning: Any, critical: Any, at: tuple[str, ...], falling: frozenset[str] = frozenset()
) -> Iterator[Fault]:
    """Yield a fault for each limit of a warning that lies beyond the critical one."""
    if warning is None or critical is None:
        return
    if isinstance(warning, Section):
        limits = dict(critical)
        falling = warning.falling if isinstance(warning, Level) else falling
        for name, limit in warning:
            yield from _beyond(limit, limits.get(name), (*at, name), falling)
    elif warning < critical if at[-1] in falling else warning > critical:
        this, other = ("raise", "lower") if at[-1] in falling else ("lower", "raise")
        yield Fault(
            f"is beyond the critical limit {quoted(critical)}",
            expected="a warning that comes before the critical alert",
            fix=f"{this} this limit, or {other} the critical one",
            at=at,
            value=warning,
        )

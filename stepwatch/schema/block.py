"""What the limits of any alert have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from stepwatch.schema.errors import Fault, Faults, quoted
from stepwatch.schema.scalars import Switch
from stepwatch.schema.section import Section, default


class Level(Section):
    """The limits of one level of which some are crossed downwards: less is worse."""

    falling: ClassVar[frozenset[str]] = frozenset()


class Block(Section):
    """What `alerts.<Name>` holds: a switch, and limits by level."""

    about_runs: ClassVar[bool] = True
    names: ClassVar[Mapping[str, str]] = {}
    """What the alert of a level is called, where that is not the block's own name."""

    enabled: Switch = default(True, "false switches the block off.")

    @model_validator(mode="after")
    def _warn_before_critical(self) -> Block:
        levels = dict(self)
        if faults := list(_beyond(levels.get("warning"), levels.get("critical"), ("warning",))):
            raise Faults(faults)
        return self


def _beyond(
    warning: Any, critical: Any, at: tuple[str, ...], falling: frozenset[str] = frozenset()
) -> Iterator[Fault]:
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

"""The `alerts` section, a block for each entry of the table, and `overrides`: other limits for some runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import create_model

from demo import OVERRIDES
from stepwatch.alerts.catalogue import BLOCKS
from stepwatch.schema.names import RunGlob
from stepwatch.schema.section import Block, Section, needed

_Block = TypeVar("_Block", bound=Block)


class _Blocks(Section):
    @classmethod
    def also_known_as(cls) -> dict[str, str]:
        """Return the block of each alert whose name is not that of its block."""
        return {name: key for key, block in BLOCKS.items() for name in block.names.values()}

    def block(self, name: str) -> Block:
        """Return the block of that name; AttributeError if there is none."""
        return cast("Block", getattr(self, name))

    def of(self, block: type[_Block]) -> _Block:
        """Return the limits of this kind."""
        return cast("_Block", getattr(self, block.__name__))


if TYPE_CHECKING:
    Alerts = _Blocks
else:
    _FIELDS: dict[str, Any] = {name: (block, block()) for name, block in BLOCKS.items()}
    Alerts = create_model("Alerts", __base__=_Blocks, __doc__="All blocks with their limits.", **_FIELDS)


class Override(Section):
    """Limits that differ for the runs of one pattern; what is left out stays as under `alerts`.

    The limits are stored as written: only with the base do they make a whole block.
    """

    runs: RunGlob = needed(
        "A pattern of run names: * any text, ? any character, [ab] one of these, [!ab] any other."
    )
    alerts: dict[str, dict[str, Any]] = needed(
        "The same keys as alerts, only those that differ. Alerts about GPUs (except GPUIdleWhileRunning) "
        "and about the stack cannot be overridden."
    )

    def over(self, name: str, base: Block) -> Block:
        """Return the base block with this override's limits over it.

        Raises:
            pydantic.ValidationError: Together they are not a valid block.
        """
        return type(base).model_validate(_merge(base.plain(), self.alerts[name]))


DEMO = tuple(Override.model_validate(override) for override in OVERRIDES)
"""The demo's overrides, in force after the user's: containers start the demo without a new rendering."""


def _merge(base: Any, partial: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(partial, Mapping):
        return partial
    return {**base, **{key: _merge(base.get(key), value) for key, value in partial.items()}}


@dataclass(frozen=True)
class Variant:
    """One set of limits of a block, and the runs it judges.

    Attributes:
        limits: The block.
        only: The pattern of the runs it is for; None for all.
        without: Patterns of runs that an earlier variant judges.
    """

    limits: Block
    only: str | None
    without: tuple[str, ...]

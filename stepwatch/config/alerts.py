"""The `alerts` section: one block per alert, or per pair of alerts, as the table of alerts has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import create_model

from stepwatch.alerts.catalogue import BLOCKS
from stepwatch.schema.block import Block
from stepwatch.schema.section import Section

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

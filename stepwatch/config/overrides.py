"""Other limits for some runs: the `overrides` section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwatch.config.block import Block
from stepwatch.config.names import RunGlob
from stepwatch.config.section import Section


class Override(Section):
    """Limits that differ for the runs of one pattern; what is left out stays as under `alerts`.

    The limits are kept as written: only over the base do they make a whole block.
    """

    runs: RunGlob
    alerts: dict[str, dict[str, Any]]

    def over(self, name: str, base: Block) -> Block:
        """Return the base block with this override's limits over it.

        Raises:
            pydantic.ValidationError: Together they are no valid block.
        """
        return type(base).model_validate(_merge(base.plain(), self.alerts[name]))


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

"""Other limits for some runs: the `overrides` section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demo.limits import OVERRIDES
from stepwatch.schema.block import Block
from stepwatch.schema.names import RunGlob
from stepwatch.schema.section import Section, needed


class Override(Section):
    """Limits that differ for the runs of one pattern; what is left out stays as under `alerts`.

    The limits are kept as written: only over the base do they make a whole block.
    """

    runs: RunGlob = needed(
        "A pattern of run names: * any text, ? any character, [ab] one of these, [!ab] any other."
    )
    alerts: dict[str, dict[str, Any]] = needed(
        "As alerts, with only what differs. Alerts about GPUs (but GPUIdleWhileRunning) and about the stack "
        "cannot be overridden."
    )

    def over(self, name: str, base: Block) -> Block:
        """Return the base block with this override's limits over it.

        Raises:
            pydantic.ValidationError: Together they are no valid block.
        """
        return type(base).model_validate(_merge(base.plain(), self.alerts[name]))


DEMO = tuple(Override.model_validate(override) for override in OVERRIDES)
"""Those of the demo, which are in force after the user's: containers start it without a new rendering."""


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

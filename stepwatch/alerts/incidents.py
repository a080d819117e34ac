"""Which alerts are one incident (``incidents.yaml``), as rules of inhibition for Alertmanager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from stepwatch.alerts.identity import Labels
from stepwatch.alerts.table import HERE, LOADER

_PRESENT = ("run", "gpu", "mountpoint", "job", "instance", "node")
"""The first of these labels that both have in common must be present: an absent label equals an absent
label."""


class Pair(NamedTuple):
    """A cause and its effects, by matchers; ``same`` are the labels that both have in common."""

    cause: tuple[str, ...]
    effect: tuple[str, ...]
    same: Labels
    why: str
    by_warning: bool = False

    @property
    def rules(self) -> Iterator[dict[str, Any]]:
        """The rules of inhibition, as Alertmanager's configuration has them."""
        severities: list[tuple[list[str], list[str]]]  # of the cause, and of the effect
        if any(matcher.startswith("severity=") for matcher in self.cause):
            severities = [([], [])]
        elif self.by_warning or any(matcher.startswith("severity=") for matcher in self.effect):
            severities = [(['severity!="info"'], [])]
        else:
            severities = [(['severity="critical"'], []), (['severity="warning"'], ['severity!="critical"'])]
        there = [f'{label}=~".+"' for label in _PRESENT if label in self.same][:1]
        equal = {"equal": list(self.same)} if self.same else {}
        for cause, effect in severities:
            yield {
                "source_matchers": [*self.cause, *cause, *there],
                "target_matchers": [*self.effect, *effect, *there],
                **equal,
            }


PAIRS = tuple(
    Pair(tuple(pair["cause"]), tuple(pair["effect"]), tuple(pair["same"]), pair["why"], "by_warning" in pair)
    for pair in yaml.load((HERE / "incidents.yaml").read_text(encoding="utf-8"), LOADER)  # noqa: S506
)

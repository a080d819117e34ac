"""Limits of the alerts on the updates of policy and critic."""

from __future__ import annotations

from stepwatch.config.block import Block
from stepwatch.config.scalars import Count, Limit, Ratio, Severity, Switch
from stepwatch.config.section import Section


class CriticDivergedWarning(Section):
    """Explained variance below `explained`, or `times_level` of the value loss, after `records`."""

    explained: Ratio = 0.0
    times_level: Limit = 5
    records: Count = 50


class CriticDiverged(Block):
    """CriticDiverged."""

    warning: CriticDivergedWarning | None = CriticDivergedWarning()


class ClipFractionHigh(Block):
    """Share of tokens clipped in each of 5 steps."""

    warning: Ratio | None = 0.5


class PolicyLossPositive(Block):
    """The loss of the policy is above 0 in each of 20 steps."""

    enabled: Switch = False
    severity: Severity = "info"

"""Limits of the alerts on what a reward is worth: on held-out prompts, and by its true part."""

from __future__ import annotations

from stepwatch.config.block import Block
from stepwatch.config.scalars import Limit, Ratio
from stepwatch.config.section import Section


class ValidationDropWarning(Section):
    """Below the best confirmed evaluation by `drop`, in units of the score, and by `noises`."""

    drop: Limit = 0.03
    noises: Limit = 5


class ValidationDropCritical(Section):
    """As the warning."""

    drop: Limit = 0.1
    noises: Limit = 10


class ValidationDrop(Block):
    """ValidationDrop."""

    warning: ValidationDropWarning | None = ValidationDropWarning()
    critical: ValidationDropCritical | None = ValidationDropCritical()


class RewardHackSuspectWarning(Section):
    """The reward gained `gain` and `noises`, and what is true gained less than `followed` of that.

    Without a true reward: validation fell by `drop` and `validation_noises`, as in ValidationDrop.
    """

    gain: Limit = 0.05
    noises: Limit = 2
    followed: Ratio = 0.2
    drop: Limit = 0.03
    validation_noises: Limit = 5


class RewardHackSuspect(Block):
    """RewardHackSuspect."""

    warning: RewardHackSuspectWarning | None = RewardHackSuspectWarning()

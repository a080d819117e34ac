"""Limits of the alerts on KL divergences that are not per token and to the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from stepwatch.config.block import Block
from stepwatch.config.scalars import Limit
from stepwatch.config.section import Section


class KLSequenceWarning(Section):
    """KLSequenceHigh; `above_start` in nats per token, `above` in nats per response."""

    above_start: Limit = 0.5
    noises: Limit = 3
    above: Limit | None = None


class KLSequence(Block):
    """KLSequenceHigh."""

    names: ClassVar[Mapping[str, str]] = {"warning": "KLSequenceHigh"}

    warning: KLSequenceWarning | None = KLSequenceWarning()


class KLTeacherWarning(Section):
    """KLTeacherHigh; `above_start` in nats per token."""

    above_start: Limit = 1
    noises: Limit = 6


class KLTeacher(Block):
    """KLTeacherHigh."""

    names: ClassVar[Mapping[str, str]] = {"warning": "KLTeacherHigh"}

    warning: KLTeacherWarning | None = KLTeacherWarning()

"""What becomes of each simulated run: the true means behind every batch, as functions of the step.

A step takes some 0.3 s, so that 200 of them are a minute. The curves are made up. All that counts is
their shape, and that the sick ones cross the default limits within three minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

RESPONSE_LIMIT = 1024
"""Tokens after which an answer is cut."""


class Level(NamedTuple):
    """True means of a step.

    ``score`` is the share of right answers, ``kl`` (to the reference) and ``entropy`` are in nats
    per token, ``length`` is in tokens, ``gradient`` the norm of the gradient. ``judge`` is
    what a second reward function gives, ``waits`` how long the step waits for it, as a share of the rest.
    """

    score: float
    kl: float
    entropy: float
    length: float
    gradient: float
    judge: float = 0.9
    waits: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """One run: its name, how it logs (``console`` or ``file``), and its course.

    From the step ``hangs_after`` on it logs nothing more, although it lives. ``served``: its log
    names rollout servers, whose metrics can be scraped.
    """

    name: str
    logger: str
    level: Callable[[int], Level]
    hangs_after: int | None = None
    served: bool = False


def healthy(step: int) -> Level:
    """Learns, faster at first, until nearly every answer is right."""
    learnt = _approach(step, 1500)
    return Level(
        score=0.2 + 0.74 * learnt,
        kl=0.002 + 0.15 * _approach(step, 6000),
        entropy=1.1 - 0.6 * learnt,
        length=240 + 160 * learnt,
        gradient=1.2 - 0.5 * learnt,
    )


def exploding(step: int) -> Level:
    """Learns for a minute, then leaves the reference behind and forgets what it knew."""
    before = healthy(min(step, 200))
    away = _logistic(step - 270, 9)
    return Level(
        score=before.score * (1 - 0.95 * away),
        kl=before.kl + 8 * away,
        entropy=before.entropy * (1 - 0.4 * away),
        length=before.length * (1 + 0.6 * away),
        gradient=before.gradient * (1 + 1.5 * away),
    )


def stagnating(step: int) -> Level:
    """Learns for twenty seconds, loses a trifle of it, and stays there: the judge fails, and soon is slow."""
    learnt = _approach(step, 15)
    return Level(
        score=0.15 + 0.32 * learnt - 0.02 * _logistic(step - 80, 10),
        kl=0.002 + 0.03 * _approach(step, 400),
        entropy=0.9 - 0.3 * learnt,
        length=260 + 30 * learnt,
        gradient=0.9 - 0.3 * learnt,
        judge=0.9 - 0.6 * _logistic(step - 80, 10),
        waits=0.4 * _logistic(step - 200, 3),
    )


SCENARIOS = (
    Scenario("healthy", "console", healthy, served=True),
    Scenario("kl-explodes", "file", exploding),
    Scenario("stagnates", "file", stagnating),
    Scenario("hangs", "console", healthy, hangs_after=165),
)


def _approach(step: int, steps: float) -> float:
    """From 0 towards 1; two thirds of the way are done after so many steps."""
    return 1 - math.exp(-step / steps)


def _logistic(step: int, steps: float) -> float:
    """From 0 to 1 around step 0, by a factor of e each so many steps at first."""
    return 1 / (1 + math.exp(-step / steps))

"""What a finite batch shows of the true means: the same, with the noise of its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from demo.scenario import RESPONSE_LIMIT, Level

SAMPLES = 256
PROMPT_TOKENS = 96.0
_SPREAD = 0.4
"""Standard deviation of a response's length, as a share of its mean."""


@dataclass(frozen=True)
class Batch:
    """Measurements of one step, in the units of ``Level``; ``cut`` is the share of answers cut short."""

    score: float
    kl: float
    entropy: float
    length: float
    longest: float
    cut: float
    gradient: float
    prompt: float

    @property
    def tokens(self) -> int:
        """Of prompts and answers together."""
        return round(SAMPLES * (self.prompt + self.length))


def draw(level: Level, rng: Random) -> Batch:
    """A batch of ``SAMPLES`` answers; the same rng give the same batch."""
    length = _around(level.length, _SPREAD / math.sqrt(SAMPLES), rng)
    return Batch(
        score=_share(level.score, rng),
        kl=_around(level.kl, 0.06, rng),
        entropy=_around(level.entropy, 0.03, rng),
        length=length,
        longest=min(RESPONSE_LIMIT, round(length * _around(1 + 3 * _SPREAD, 0.08, rng))),
        cut=round(_beyond(RESPONSE_LIMIT, length) * SAMPLES) / SAMPLES,
        gradient=_around(level.gradient, 0.12, rng),
        prompt=_around(PROMPT_TOKENS, 0.02, rng),
    )


def _share(probability: float, rng: Random) -> float:
    """How many of the answers are right: binomial, by its normal approximation."""
    deviation = math.sqrt(probability * (1 - probability) / SAMPLES)
    right = round(SAMPLES * rng.gauss(probability, deviation))
    return min(SAMPLES, max(0, right)) / SAMPLES


def _around(mean: float, spread: float, rng: Random) -> float:
    """Positive, with a relative standard deviation of ``spread``."""
    return mean * math.exp(rng.gauss(0, spread))


def _beyond(limit: float, mean: float) -> float:
    """Share of answers longer than the limit: the tail of a normal distribution."""
    return 0.5 * math.erfc((limit - mean) / (_SPREAD * mean * math.sqrt(2)))

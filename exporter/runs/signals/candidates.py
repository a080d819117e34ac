"""Keys that look like a reward, a KL divergence, a length or an entropy, and carry no signal yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from exporter.runs.signals.keys.key import normal

ENOUGH_RECORDS = 5
"""The first records may lack what comes later: actor metrics during a critic's warm-up, say."""

MOST_KEYS = 4
"""Keys named for one signal: a trainer may log the reward of each of a hundred environments."""

_REWARD = frozenset({"reward", "rewards", "rew", "score", "scores", "return", "returns"})
_KL = frozenset({"kl", "kld", "kls", "kldiv"})
_ENTROPY = frozenset({"entropy", "entropies"})
_LENGTH = frozenset({"length", "lengths", "len", "lens"})
_VALIDATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout"})

_KINDS_OF_KL = {
    "kl_teacher": frozenset({"teacher", "distill", "distillation"}),
    "kl_engine": frozenset(
        {"engine", "mismatch", "rollout", "sample", "sampler", "infer", "inference", "vllm", "sglang"}
    ),
    "kl_sequence": frozenset({"seq", "sequence"}),
    "policy_kl": frozenset({"approx", "old", "policy", "ppo", "update"}),
}

_NO_MEAN = frozenset(
    (
        *("std", "stddev", "var", "variance", "max", "min", "maximum", "minimum", "median", "diff", "range"),
        *("best", "worst", "p10", "p25", "p50", "p75", "p90", "p95", "p99"),
        *("coef", "coeff", "coefficient", "beta", "weight", "weights", "target", "limit", "threshold"),
        *("frac", "fraction", "ratio", "rate", "share", "zero", "clip", "clipped", "clipfrac", "truncated"),
        *("time", "seconds", "ms", "count", "num", "step", "steps", "norm", "grad", "lr", "id", "version"),
    )
)
"""Words of keys that hold something else than the mean."""

_NO_RESPONSE = frozenset({"prompt", "prompts", "query", "queries", "input", "context", "prefill", "episode"})
_MEANS = frozenset({"mean", "avg", "average"})


class Candidate(NamedTuple):
    """A signal that a run lacks, and the keys that may carry it, the likeliest first."""

    signal: str
    keys: tuple[str, ...]

    @property
    def setting(self) -> str:
        """The line to add below ``signals:`` in config.yaml."""
        return f"{self.signal}: [{', '.join(map(_quoted, self.keys))}]"


def candidates(unmapped: Iterable[str], carried: Collection[str]) -> tuple[Candidate, ...]:
    """What keys without a signal may mean, of signals that are not ``carried`` yet."""
    found: dict[str, list[str]] = {}
    for key in unmapped:
        signal = _resembled(_words(key))
        if signal and signal not in carried:
            found.setdefault(signal, []).append(key)
    return tuple(
        Candidate(signal, tuple(sorted(keys, key=_unlikelihood)[:MOST_KEYS]))
        for signal, keys in found.items()
    )


def may_be_measured(key: str) -> bool:
    """Whether a log that no table of keys fits measures something of reinforcement learning by this key.

    Words of a sentence and deeply nested values do not.
    """
    return " " not in key and key.count("/") < 2 and not _words(key).isdisjoint(_RECOGNISED)


_RECOGNISED = _REWARD - {"score", "scores", "return", "returns"} | _KL | _ENTROPY
"""Words that stand in no table but that of a training: others measure scores and lengths as well."""


def _resembled(words: frozenset[str]) -> str | None:
    """The signal whose mean a key of these words looks like."""
    held_out = not words.isdisjoint(_VALIDATION)
    if not words.isdisjoint(_NO_MEAN):
        return None
    if not words.isdisjoint(_KL):
        return next((kind for kind, signs in _KINDS_OF_KL.items() if not words.isdisjoint(signs)), "kl")
    if not words.isdisjoint(_ENTROPY):
        return "entropy"
    if not words.isdisjoint(_LENGTH) and words.isdisjoint(_NO_RESPONSE):
        return "validation_response_length" if held_out else "response_length"
    if not words.isdisjoint(_REWARD):
        return "validation_score" if held_out else "reward"
    return None


def _words(key: str) -> frozenset[str]:
    return frozenset(normal(key).split("_"))


def _quoted(key: str) -> str:
    """The key as YAML, with any content."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    shown = (each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped)
    return f'"{"".join(shown)}"'


def _unlikelihood(key: str) -> tuple[bool, int]:
    """How far a key is from the plain mean of its signal: a mean comes first, then what has few words."""
    words = _words(key)
    return words.isdisjoint(_MEANS), len(words)

"""Keys without a signal: what they may mean, and the few that are shown as they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from exporter.runs.signals.reading import ENTROPY, KL, REWARD, SHARES, SUCCESS, Reading, words_of

ENOUGH_RECORDS = 5
"""The first records may lack what comes later: actor metrics during a critic's warm-up, say."""
MOST_CANDIDATES = 4
"""Keys named for one signal: a trainer may log the reward of each of a hundred environments."""
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
        *SHARES,
        *("zero", "clip", "clipped", "clipfrac", "truncated"),
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

    def unlikelihood(key: str) -> tuple[bool, int]:  # a mean comes first, then what has few words
        words = words_of(key)
        return words.isdisjoint(_MEANS), len(words)

    found: dict[str, list[str]] = {}
    for key in unmapped:
        signal = _resembled(words_of(key))
        if signal and signal not in carried:
            found.setdefault(signal, []).append(key)
    return tuple(
        Candidate(signal, tuple(sorted(keys, key=unlikelihood)[:MOST_CANDIDATES]))
        for signal, keys in found.items()
    )


def _resembled(words: frozenset[str]) -> str | None:
    """The signal whose mean a key of these words looks like."""
    held_out = not words.isdisjoint(_VALIDATION)
    if not words.isdisjoint(_NO_MEAN if words.isdisjoint(SUCCESS) else _NO_MEAN - SHARES):
        return None
    if not words.isdisjoint(KL):
        return next((kind for kind, signs in _KINDS_OF_KL.items() if not words.isdisjoint(signs)), "kl")
    if not words.isdisjoint(ENTROPY):
        return "entropy"
    if not words.isdisjoint(_LENGTH) and words.isdisjoint(_NO_RESPONSE):
        return "validation_response_length" if held_out else "response_length"
    if not words.isdisjoint(REWARD | SUCCESS):
        return "validation_score" if held_out else "reward"
    return None


def _quoted(key: str) -> str:
    """The key as YAML, with any content."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    shown = (each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped)
    return f'"{"".join(shown)}"'


KEY_SETS = 16  # Kinds of records that are remembered: with and without validation, a checkpoint, and so on
USUAL_LIMIT = 40  # Raw keys of one run that are shown unless someone asks for more or fewer
LONGEST = 200  # characters of a key; Prometheus keeps each label's text for as long as the series
MOST_REFUSED = 10_000
"""Keys that are counted as refused; a trainer that makes up new ones each step fills no memory."""


@dataclass(frozen=True, slots=True)
class RawRule:
    """Which keys may be shown (patterns such as ``env/*``), and how many of one run."""

    allow: tuple[str, ...] = ("*",)
    limit: int = USUAL_LIMIT


class RawKeys:
    """A run's last values under keys of no signal, and of those that are ``always`` shown.

    ``kinds`` counts the sets of keys that came.
    """

    def __init__(self, rule: RawRule, reading: Reading, always: tuple[str, ...] = ()) -> None:
        self.kinds = 0
        self._rule, self._reading, self._always = rule, reading, always
        self._records: dict[tuple[str, ...], Mapping[str, Any]] = {}
        self._shown: dict[str, None] = {}
        self._refused: set[str] = set()

    def note(self, values: Mapping[str, Any]) -> None:
        """Take a record's values; they are looked at when they are asked for."""
        keys = tuple(values)
        if self._records.pop(keys, None) is None:
            self.kinds += 1
        self._records[keys] = values
        if len(self._records) > KEY_SETS:
            del self._records[next(iter(self._records))]

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that it was read from last."""
        found: dict[str, tuple[str, ...]] = {}
        for values in self._records.values():
            found.update(self._reading.sources(values))
        return found

    def values(self, room: float = math.inf) -> dict[str, float]:
        """Value by key: of all that is allowed, what came first, up to the limit and where there is room."""
        latest, most = self.unmapped(), min(self._rule.limit, room)
        always = {
            key: float(value)
            for values in self._records.values()
            for key in self._always
            if isinstance(value := values.get(key), int | float)
        }
        while len(self._shown) > most:
            self._refuse(self._shown.popitem()[0])
        chosen = always
        for key, value in latest.items():
            if key in always:
                continue
            if key not in self._shown:
                if key in self._refused or len(key) > LONGEST:
                    continue
                if not any(fnmatchcase(key, pattern) for pattern in self._rule.allow):
                    continue
                if len(self._shown) >= most:
                    self._refuse(key)
                    continue
                self._shown[key] = None
            chosen[key] = value
        return chosen

    def unmapped(self) -> dict[str, float]:
        """Value by key of all that no signal uses, whether or not it may be shown."""
        latest: dict[str, float] = {}
        for values in self._records.values():
            latest.update(self._reading.unmapped(values))
        return latest

    @property
    def more_than_usual(self) -> int:
        """How many more keys may be shown than by default."""
        return max(0, self._rule.limit - USUAL_LIMIT)

    @property
    def refused(self) -> int:
        """Keys that were allowed but came after the limit was reached, or had to make room."""
        return len(self._refused)

    def _refuse(self, key: str) -> None:
        if len(self._refused) < MOST_REFUSED:
            self._refused.add(key)

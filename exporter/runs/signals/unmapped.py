"""Keys without a signal: whether they measure RL, what they may mean, and the few that are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from exporter.runs.signals.key import Key, normal
from exporter.runs.signals.reading import LONGEST_KEY, Reading, fits
from exporter.runs.signals.tables import frameworks


def _words(key: str) -> frozenset[str]:
    return frozenset(normal(key).split("_"))


_REWARD = _words("reward rewards rew score scores return returns")
_KL = _words("kl kld kls kldiv")
_ENTROPY = _words("entropy entropies")
_SUCCESS = _words("acc correct pass passed solve solved success successes win")
_SHARES = _words("frac fraction ratio rate share")
"""What trainers of one's own call a reward of 0 or 1, and its mean."""
_TELLING = _REWARD - _words("score scores return returns") | _KL | _ENTROPY
"""Words that stand in no table but that of a training: others measure scores and lengths as well."""
_LENGTH = _words("length lengths len lens")
_VALIDATION = _words("val valid validation eval evaluation test dev heldout")
_KINDS_OF_KL = {
    "kl_teacher": _words("teacher distill distillation"),
    "kl_engine": _words("engine mismatch rollout sample sampler infer inference vllm sglang"),
    "kl_sequence": _words("seq sequence"),
    "policy_kl": _words("approx old policy ppo update"),
}
_NO_RESPONSE = _words("prompt prompts query queries input context prefill episode")
_MEANS = _words("mean avg average")
_NO_MEAN = _SHARES.union(
    _words("std stddev var variance max min maximum minimum median diff range best worst"),
    _words("p10 p25 p50 p75 p90 p95 p99 coef coeff coefficient beta weight weights target limit threshold"),
    _words(
        "zero clip clipped clipfrac truncated time seconds ms count num step steps norm grad lr id version"
    ),
)
"""Words of keys that hold something else than the mean."""
_SETTINGS = frozenset({"epoch", "learning_rate", "critic_learning_rate", "kl_coefficient"})
"""Signals that stand in files of settings as well."""

Mapped = frozenset[Key]
"""The keys that config.yaml maps to signals: JSON lines with one of them are a trainer's."""
NONE_MAPPED: Mapped = frozenset()

ENOUGH_RECORDS = 5
"""The first records may lack what comes later: actor metrics during a critic's warm-up, say."""
MOST_CANDIDATES = 4
"""Keys named for one signal: a trainer may log the reward of each of a hundred environments."""
USUAL_LIMIT = 40  # Raw keys of one run that are shown unless someone asks for more or fewer
LONGEST = 200  # characters of a key; Prometheus keeps each label's text for as long as the series
MOST_REFUSED = 10_000
"""Keys that are counted as refused; a trainer that makes up new ones each step fills no memory."""


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """The normal forms of all keys of the tables that are guessed."""
    tables = (each.keys.values() for each in frameworks().values() if each.guessed)
    return frozenset(name for table in tables for keys in table for key in keys for name in key.names)


@lru_cache(maxsize=256)
def measurements(keys: tuple[str, ...], mapped: Mapped = NONE_MAPPED) -> int:
    """How many measured signals some framework finds among these keys; 1 if a key only looks like one."""
    known, found = _known(), 0
    # asked for every line of text that could be the head of a table: a quick look first
    short = (key for key in keys if len(key) <= LONGEST_KEY)
    if any(normal(key) in known or normal(key.partition("/")[2]) in known for key in short):
        found = max(len(signals - _SETTINGS) for signals in fits(keys).values())
    return found or int(any(_may_be_measured(key, mapped) for key in keys))


def _may_be_measured(key: str, mapped: Mapped) -> bool:
    """Whether this key, unless it is a word of a sentence, measures RL in a log that no table fits."""
    form, words = normal(key), _words(key)
    if any(form in each.names or (each.pattern and re.fullmatch(each.pattern, form)) for each in mapped):
        return True
    telling = words & _TELLING or (words & _SUCCESS and words & _SHARES)
    return " " not in key and key.count("/") < 2 and bool(telling)


class Candidate(NamedTuple):
    """A signal that a run lacks, and the keys that may carry it, the likeliest first."""

    signal: str
    keys: tuple[str, ...]

    @property
    def setting(self) -> str:
        """The line to add below ``signals:`` in config.yaml: the keys as YAML, with any content."""
        escaped = '", "'.join(key.replace("\\", "\\\\").replace('"', '\\"') for key in self.keys)
        shown = (each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped)
        return f'{self.signal}: ["{"".join(shown)}"]'


def candidates(unmapped: Iterable[str], carried: Collection[str]) -> tuple[Candidate, ...]:
    """What keys without a signal may mean, of signals that are not ``carried`` yet."""

    def unlikelihood(key: str) -> tuple[bool, int]:  # a mean comes first, then what has few words
        return _words(key).isdisjoint(_MEANS), len(_words(key))

    found: dict[str, list[str]] = {}
    for key in unmapped:
        signal = _resembled(_words(key))
        if signal and signal not in carried:
            found.setdefault(signal, []).append(key)
    return tuple(
        Candidate(signal, tuple(sorted(keys, key=unlikelihood)[:MOST_CANDIDATES]))
        for signal, keys in found.items()
    )


def _resembled(words: frozenset[str]) -> str | None:
    """The signal whose mean a key of these words looks like."""
    held_out = words & _VALIDATION
    if words & (_NO_MEAN - _SHARES if words & _SUCCESS else _NO_MEAN):
        return None
    if words & _KL:
        return next((kind for kind, signs in _KINDS_OF_KL.items() if words & signs), "kl")
    if words & _ENTROPY:
        return "entropy"
    if words & _LENGTH and not words & _NO_RESPONSE:
        return "validation_response_length" if held_out else "response_length"
    if words & (_REWARD | _SUCCESS):
        return "validation_score" if held_out else "reward"
    return None


class RawRule(NamedTuple):
    """Which keys may be shown (patterns such as ``env/*``), and how many of one run."""

    allow: tuple[str, ...] = ("*",)
    limit: int = USUAL_LIMIT


class RawKeys:
    """A run's last values under keys of no signal, and of those that are ``always`` shown.

    ``refused`` are keys that were allowed but came after the limit was reached, or had to make room.
    """

    def __init__(self, rule: RawRule, reading: Reading, always: tuple[str, ...] = ()) -> None:
        self.refused: set[str] = set()
        self._rule, self._reading, self._always = rule, reading, always
        self._shown: dict[str, None] = {}
        self._candidates: tuple[object, tuple[Candidate, ...]] = None, ()

    def candidates(self, carried: frozenset[str]) -> tuple[Candidate, ...]:
        """What the keys may mean, of signals that are not ``carried``."""
        seen = self._reading.kinds, carried
        if self._candidates[0] != seen:
            self._candidates = seen, candidates(self._reading.unmapped(), carried)
        return self._candidates[1]

    def values(self, room: float = math.inf) -> dict[str, float]:
        """Value by key: of all that is allowed, what came first, up to the limit and where there is room."""
        most = min(self._rule.limit, room)
        chosen = {
            key: float(value)
            for values in self._reading.records.values()
            for key in self._always
            if isinstance(value := values.get(key), int | float)
        }
        while len(self._shown) > most:
            self._refuse(self._shown.popitem()[0])
        for key, value in self._reading.unmapped().items():
            if key not in chosen and key not in self._shown and key not in self.refused:
                if len(key) > LONGEST or not any(fnmatchcase(key, each) for each in self._rule.allow):
                    continue
                if len(self._shown) < most:
                    self._shown[key] = None
                else:
                    self._refuse(key)
            if key in self._shown:
                chosen.setdefault(key, value)
        return chosen

    def _refuse(self, key: str) -> None:
        if len(self.refused) < MOST_REFUSED:
            self.refused.add(key)

"""Patterns of RL failure, and the signs of each. What one means, and what to do, is in docs/runbook.md.

A sign is seen while one of its alerts fires, or when one of its signals moved: ``kl up`` and ``kl down`` say
that a signal left the band of its last steps, ``kl still`` that it is logged and never did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stepwatch.alerts import cluster, engines, gpu_health, gpu_load, host, ray
from stepwatch.alerts.model.alert import Alert, Translate

MOVES = ("up", "down", "still")
"""How a signal moved, behind its name."""


class Sign(NamedTuple):
    """One sign: what a person reads, and alerts and moves of which one is enough."""

    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """A way in which runs fail.

    Attributes:
        name: Its heading in the runbook.
        mark: The sign without which it is another pattern. Mostly an alert: signals of healthy runs leave
            their band too, such as a reward that rises at the start.
        others: Signs that may be missing.
        against: Alerts and moves that say that it is another pattern.
    """

    name: str
    mark: Sign
    others: tuple[Sign, ...]
    against: tuple[str, ...] = ()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """All of its signs, the mark first."""
        return (self.mark, *self.others)

    def translated(self, translate: Translate) -> Pattern:
        """Return the same with its texts in another language."""
        mark, *others = (Sign(translate(sign.text), sign.evidence) for sign in self.signs)
        return Pattern(translate(self.name), mark, tuple(others), self.against)


def _sign(text: str, *evidence: str) -> Sign:
    return Sign(text, evidence)


def _names(alerts: Iterable[Alert]) -> Iterable[str]:
    return dict.fromkeys(alert.name for alert in alerts)


_REWARD_FALLS = _sign("reward falls", "RewardDrop", "RewardCollapse", "reward down")
_REWARD_LOW = _sign("reward falls or stagnates", *_REWARD_FALLS.evidence, "RewardStagnation")
_REWARD_STAYS = _sign("reward stays", "reward still")
_REWARDS_EQUAL = _sign("rewards are all equal", "NoLearningSignal", "zero_std_ratio up")
_VALIDATION_FALLS = _sign("validation falls", "ValidationDrop", "validation_score down")
_KL_RISES = _sign(
    "KL rises", "KLHigh", "KLExplosion", "KLSequenceHigh", "KLTeacherHigh", "kl up", "kl_teacher up"
)
_KL_STAYS = _sign("KL stays", "kl still")
_UPDATES_LARGE = _sign(
    "updates are large", "PolicyKLHigh", "ClipFractionHigh", "policy_kl up", "policy_clip_ratio up"
)
_ENTROPY_FALLS = _sign("entropy falls", "EntropyCollapse", "entropy down")
_ENTROPY_RISES = _sign("entropy rises", "EntropyExplosion", "entropy up")
_ENTROPY_MOVES = _sign("entropy moves", *_ENTROPY_FALLS.evidence, *_ENTROPY_RISES.evidence)
_ENTROPY_STAYS = _sign("entropy stays", "entropy still")
_GRADIENT_RISES = _sign("gradient norm rises", "GradNormHigh", "grad_norm up")
_GRADIENT_FALLS = _sign("gradient norm falls", "grad_norm down")
_LONGER = _sign("responses grow", "LengthRunaway", "response_length up")
_LENGTH_STAYS = _sign("length stays", "response_length still")
_STEPS_SLOWER = _sign(
    "steps are slower", "SlowSteps", "step_seconds up", "rollout_seconds up", "tokens_per_second down"
)

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "Numeric blow-up",
        _sign("NaN or Inf", "NonFinite"),
        (_GRADIENT_RISES, _REWARD_FALLS, _KL_RISES),
    ),
    Pattern(
        "Reward hacking",
        _sign("reward rises", "RewardHackSuspect"),
        (
            _sign("the true score does not", "RewardHackSuspect", *_VALIDATION_FALLS.evidence),
            _LONGER,
            _KL_RISES,
        ),
        against=("RewardDrop", "RewardCollapse", "NoLearningSignal"),
    ),
    Pattern(
        "Dead scorer",
        _sign("rewards are all equal, or fall at once", "NoLearningSignal", "reward down"),
        (_KL_STAYS, _ENTROPY_STAYS, _LENGTH_STAYS, _STEPS_SLOWER),
        against=(
            *("NonFinite", "GradNormHigh", "KLHigh", "KLExplosion", "EntropyCollapse", "EntropyExplosion"),
            *("LengthRunaway", "LengthCollapse", "Truncation", "kl up", "entropy up", "entropy down"),
            *("response_length up", "response_length down"),
        ),
    ),
    Pattern(
        "KL runaway",
        _sign("KL rises", "KLHigh", "KLExplosion", "KLSequenceHigh", "KLTeacherHigh"),
        (_REWARD_FALLS, _GRADIENT_RISES, _UPDATES_LARGE, _VALIDATION_FALLS),
        against=("NonFinite", "RolloutMismatch"),
    ),
    Pattern(
        "Entropy collapse",
        _sign("entropy falls", "EntropyCollapse"),
        (_REWARD_LOW, _REWARDS_EQUAL, _GRADIENT_FALLS),
        against=("EntropyExplosion",),
    ),
    Pattern(
        "Entropy explosion",
        _sign("entropy rises", "EntropyExplosion"),
        (
            _REWARD_FALLS,
            _GRADIENT_RISES,
            _sign("responses grow or are truncated", *_LONGER.evidence, "Truncation", "truncated_ratio up"),
        ),
    ),
    Pattern(
        "Length runaway",
        _sign("responses reach the limit", "LengthRunaway", "Truncation"),
        (_LONGER, _REWARD_FALLS, _STEPS_SLOWER),
    ),
    Pattern(
        "Truncation trap",
        _sign("responses are truncated", "Truncation", "EngineTruncated"),
        (_LENGTH_STAYS, _REWARD_LOW, _REWARDS_EQUAL),
        against=("LengthRunaway", "LengthCollapse", "EntropyExplosion", "response_length up"),
    ),
    Pattern(
        "Length collapse",
        _sign("responses shrink", "LengthCollapse"),
        (_REWARD_FALLS, _ENTROPY_MOVES, _KL_RISES, _GRADIENT_RISES),
    ),
    Pattern(
        "No learning signal",
        _sign("rewards are all equal or stagnate", "NoLearningSignal", "RewardStagnation"),
        (_REWARD_STAYS, _KL_STAYS, _GRADIENT_FALLS),
        against=("Truncation", "EntropyCollapse", "KLHigh"),
    ),
    Pattern(
        "Rollout mismatch",
        _sign("engine and trainer disagree", "RolloutMismatch"),
        (_GRADIENT_RISES, _REWARD_FALLS, _KL_RISES),
    ),
    Pattern(
        "Stale samples",
        _sign("samples are stale", "Staleness"),
        (_UPDATES_LARGE, _GRADIENT_RISES, _REWARD_FALLS),
    ),
    Pattern(
        "Critic divergence",
        _sign("the critic fails", "CriticDiverged"),
        (
            _sign("its loss or gradient norm rises", "value_loss up", "critic_grad_norm up"),
            _sign("policy loss moves", "policy_loss up", "policy_loss down"),
            _REWARD_FALLS,
        ),
    ),
    Pattern(
        "Environment",
        _sign("the run stops or slows", "Stalled", "SlowSteps", "RunVanished", "RunFailed", "RunStopped"),
        (
            _REWARD_STAYS,
            _KL_STAYS,
            _sign(
                "alert about a machine",
                *_names((*gpu_health.ALERTS, *gpu_load.ALERTS, *host.ALERTS, *cluster.ALERTS)),
            ),
            _sign("alert about rollouts", *_names((*engines.ALERTS, *ray.ALERTS))),
        ),
    ),
)
"""In the order in which they are shown where equally many of their signs are seen."""
